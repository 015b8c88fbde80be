"""The soak is a script of the repository, not a part of the package, and so found from its root only."""

from __future__ import annotations

import sys

from docs.blocks import ROOT

if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
