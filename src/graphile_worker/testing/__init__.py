"""For tests of programs that use the queue: databases, workers that drain it, a clock to move.

With pytest the fixtures of `pytest_plugin` are there as soon as the package is installed; without pytest the
names below do the same. They are imported when they are first used, because pytest imports this package in
every run of every project that has it installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .database import DatabaseServer
    from .fake_clock import FakeClock
    from .job_factory import make_job
    from .jobs import AddedJobs, RunJobs
    from .recorder import EventRecorder
    from .results import JobRun, JobsRun
    from .scratch import scratch_server

__all__ = [
    "AddedJobs",
    "DatabaseServer",
    "EventRecorder",
    "FakeClock",
    "JobRun",
    "JobsRun",
    "RunJobs",
    "make_job",
    "scratch_server",
]

_HOME_OF = {
    "AddedJobs": "jobs",
    "DatabaseServer": "database",
    "EventRecorder": "recorder",
    "FakeClock": "fake_clock",
    "JobRun": "results",
    "JobsRun": "results",
    "RunJobs": "jobs",
    "make_job": "job_factory",
    "scratch_server": "scratch",
}


def __getattr__(name: str) -> Any:
    try:
        home = _HOME_OF[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
