"""`run` and `run_once`: the only package that knows all parts of a worker.

It builds them from the options and starts them in order: database, schema, tasks, recurring jobs, pool.
`process`, `testing`, `admin` and what is above them may import it. Start in `build`.
"""

from .api import end_by_signal, run, run_once

__all__ = ["end_by_signal", "run", "run_once"]
