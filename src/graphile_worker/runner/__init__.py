"""`run`, `run_once` and `App`: the only package that knows all parts of a worker.

It builds them from the options and starts them in order: database, schema, tasks, recurring jobs, pool.
An `App` is what an application brings to a worker. `testing`, `admin` and what is above them may import this
package. Start in `build`; `application` has the app, `lifespan` its state, and `process/` a worker as a
process of the operating system.
"""

from typing import TYPE_CHECKING

from ..values import export_lazily

if TYPE_CHECKING:
    from .api import end_by_signal as end_by_signal
    from .api import run as run
    from .api import run_once as run_once

# A program that only declares its app and its tasks starts without the parts of a worker.
export_lazily(__name__, {"api": "end_by_signal run run_once"})
