"""How workers are set up: the modes they run in, and how soon they are taken for dead."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from chaos.history import Limits
from graphile_worker.values.options import WorkerOptions

CONNECTING = 2.0  # seconds at most between two tries of a worker to show itself again
BOUNCER_RETRY = 1.0  # seconds after which the pooler tries again to reach a server that was away


class Timing(msgspec.Struct, frozen=True):
    """The options of recovery; those of a short run make seconds of what takes half a minute otherwise."""

    name: str
    heartbeat_interval: float
    recovery_grace: float
    sweep_interval: float

    @property
    def options(self) -> dict[str, Any]:
        return {
            "heartbeat_interval": self.heartbeat_interval,
            "recovery_grace": self.recovery_grace,
            "sweep_interval": self.sweep_interval,
        }

    @property
    def until_taken(self) -> float:
        """The longest time from the death of a worker to its jobs being free."""
        return 2 * self.heartbeat_interval + self.recovery_grace + 1.2 * self.sweep_interval

    @property
    def limits(self) -> Limits:
        return Limits(aftermath=self.until_taken + CONNECTING + BOUNCER_RETRY, grace=self.recovery_grace)

    def __str__(self) -> str:
        options = ", ".join(f"{name} {value:g} s" for name, value in self.options.items())
        return f"{self.name} settings: {options}"


SHORT = Timing("shortened", 0.5, 2.0, 0.5)
DEFAULT = Timing("default", 4.0, 12.0, 5.0)


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run a worker process."""

    name: str
    pools: tuple[dict[str, Any], ...]
    is_pooled: bool = False
    """Behind a pooler in transaction mode, where only heartbeats prove it alive."""
    is_pool_given: bool = False
    clock_ahead: float = 0.0
    """Seconds by which the clock of the process is wrong."""
    has_limits: bool = True
    """Whether it has tasks with a limit, and so a lane for them. With several lanes, no queue is held."""
    broken: str = ""
    """The guard that is removed from the process; empty: none."""

    @property
    def slots(self) -> list[int]:
        """How many jobs each pool runs at once."""
        return [pool.get("concurrency", WorkerOptions().concurrency) for pool in self.pools]

    @property
    def shows_by(self) -> Literal["lock", "heartbeat"]:
        return "heartbeat" if self.is_pooled else "lock"


TWO_HOURS = 7200.0

LOCAL_QUEUE = {
    "local_queue": {"size": 6},
    "complete_job_batch_delay": 0.02,
    "fail_job_batch_delay": 0.02,
    "concurrency": 3,
}

MODES = (
    Mode(name="default", pools=({"concurrency": 4},)),
    Mode(name="direct", pools=({"concurrency": 3, "prefetch": 0},), clock_ahead=TWO_HOURS),
    Mode(name="local-queue", pools=(LOCAL_QUEUE,), clock_ahead=-TWO_HOURS),
    Mode(name="two-pools", pools=({"concurrency": 2}, LOCAL_QUEUE)),
    Mode(name="given-pool", pools=({"concurrency": 3},), is_pool_given=True),
    Mode(name="pgbouncer", pools=({"concurrency": 3, "prepared_statements": False},), is_pooled=True),
)

HELD_MODES = (
    Mode(name="ten-slots", pools=({"concurrency": 10},)),
    Mode(name="default", pools=({},)),
    Mode(name="direct", pools=({"prefetch": 0},), clock_ahead=TWO_HOURS),
)
"""Workers that hold jobs, beside one that never does. More of them would leave none enough to hold."""
QUEUE_MODES = tuple(msgspec.structs.replace(mode, has_limits=False) for mode in HELD_MODES)
"""The same with one lane."""
HOLDING = (0, 1)
"""The places of those that hold jobs."""
