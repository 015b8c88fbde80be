"""For tests of programs that use the queue: databases, workers that drain the queue, a clock to move.

With pytest, the fixtures of `pytest_plugin` are available once the package is installed; without pytest, the
names below do the same. They are imported on first use, because pytest imports this package in every run of
every project that has it installed. Only `contrib` may import this package. Start in `jobs`.
"""

from typing import TYPE_CHECKING

from ..values import export_lazily

if TYPE_CHECKING:
    from .database import DatabaseServer as DatabaseServer
    from .fake_clock import FakeClock as FakeClock
    from .jobs import AddedJobs as AddedJobs
    from .jobs import RunJobs as RunJobs
    from .jobs import make_job as make_job
    from .results import EventRecorder as EventRecorder
    from .results import JobRun as JobRun
    from .results import JobsRun as JobsRun
    from .results import UnknownTask as UnknownTask
    from .scratch import scratch_server as scratch_server

export_lazily(
    __name__,
    {
        "database": "DatabaseServer",
        "fake_clock": "FakeClock",
        "jobs": "AddedJobs RunJobs make_job",
        "results": "EventRecorder JobRun JobsRun UnknownTask",
        "scratch": "scratch_server",
    },
)
