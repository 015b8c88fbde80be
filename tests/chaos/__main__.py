"""`python -m tests.chaos`: modules are found as pytest finds them, from the folder `tests`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.command import main

sys.exit(main())
