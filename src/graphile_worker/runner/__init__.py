"""`run` and `run_once`: the one place that wires a worker together, and the Runner that holds it.

Everything is built here from options and started in order: database, schema, tasks, recurring jobs, the pool
of slots. Nothing else in the package knows all of these.
"""

from .api import end_by_signal, run, run_once

__all__ = ["end_by_signal", "run", "run_once"]
