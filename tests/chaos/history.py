"""What happened in a run, as one value: what was added, what ran where, what was done to whom, what is left.

Moments are seconds of the machine's monotonic clock, which all processes share, except where a field says
that it is by the server's clock. The value can be written to a file, to be judged again later.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Fails = Literal["never", "once", "always"]
Outcome = Literal["end", "failed", "cancelled"]
Ending = Literal["alive", "killed", "left", "ended", "not started"]
FaultKind = Literal["kill", "leave", "stop", "terminate", "restart", "partition", "cut", "lock", "unlock"]
PauseKind = Literal["queue", "task", "all"]


AT_ONCE = 2
"""How many jobs of the limited task may run at once."""
LIMITED = "/limited"
"""The end of the token of a job of the limited task."""
QUEUE_CONCURRENCY = 3
"""How many jobs of a wide queue may run at once."""
WIDE = "wide "
"""The beginning of the names of wide queues."""
BULK_QUEUE = "bulk "
"""The beginning of the names of queues with many short jobs."""
BLOCKING = "work_blocking"
"""The task that blocks the event loop of its worker."""
FREE_TASKS = ("work", "work_in_thread", BLOCKING)
"""Those that have no limit: without a queue, nothing but a pause keeps their jobs from running."""


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """One committed add."""

    number: int
    """Grows in the order of commits, among the adds of one key."""
    token: str
    """Stands in the payload and is never used twice."""
    job_id: int
    key: str | None = None
    queue: str | None = None
    fails: Fails = "never"
    max_attempts: int = 25
    kept: bool = False
    """Whether its end is to be kept."""
    at: float = 0.0
    """By the server's clock, while the transaction held the row."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a task, as the task itself noted it."""

    worker: str
    pool: str
    job_id: int
    token: str
    task: str = ""
    queue: str | None = None
    attempts: int = 1
    """As the task saw it."""
    locked_at: float = 0.0
    """When the job was locked for this run, by the server's clock."""
    started: float
    ended: float | None = None
    outcome: Outcome | None = None
    """None: the process was gone before the task was over."""
    held: bool = False
    """Whether it began inside the transaction that fetched the job."""
    session: int | None = None
    """The server's process that has this transaction."""
    written: float | None = None
    """When the worker knew that its outcome was committed."""
    discarded: float | None = None
    """When the worker knew that the job belonged to another one."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process, from its start to its end."""

    name: str
    mode: str
    shows_by: Literal["lock", "heartbeat"] = "lock"
    """What proves it alive."""
    pools: list[str]
    started: float
    ended: float | None = None
    ending: Ending = "alive"
    status: int | None = None
    held: int = 0
    """How many jobs it has fetched in held batches."""
    slots: list[int] = []
    """How many jobs each of its pools runs at once."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done to workers on purpose."""

    kind: FaultKind
    at: float
    until: float
    workers: list[str]
    detail: str = ""
    sessions: list[int] = []
    """The server's processes whose connections were lost by it; known if jobs are held."""


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    """A pause of a queue, of a task, or of everything, as long as it was certainly in force."""

    kind: PauseKind
    name: str = ""
    began: float = 0.0
    ended: float = 0.0
    began_at: float = 0.0
    """By the server's clock."""
    ended_at: float = 0.0
    """By the server's clock."""

    def stops(self, run: Run) -> bool:
        """Whether it is about this job."""
        return self.kind == "all" or self.name == (run.queue if self.kind == "queue" else run.task)


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a job without a queue was certainly ready, and locked by no one."""

    job_id: int
    token: str | None = None
    task: str
    began: float
    ended: float


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was left in the table at the end."""

    id: int
    token: str
    attempts: int = 0
    max_attempts: int = 25
    queue: str | None = None
    locked_by: str | None = None
    due_for: float = 0.0
    """Seconds since it might have run; negative: until it may."""
    last_error: str | None = None

    @property
    def is_out_of_attempts(self) -> bool:
        return self.attempts >= self.max_attempts


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A named queue at the end."""

    name: str
    locked_by: str | None = None


class FinishedRow(msgspec.Struct, frozen=True, kw_only=True):
    """An end that was kept."""

    job_id: int
    state: str
    token: str | None = None
    """The result of a completed job."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the rules allow."""

    aftermath: float
    """After a fault has ended a worker may be cut off for so much longer: it must connect again."""
    write_within: float = 5.0
    """How a task ended is written so soon if nothing interferes."""
    commit_within: float = 1.0
    """The same where jobs are held: `hold`, and what a busy machine needs to end the batch."""
    grace: float = 0.0
    """What a dead worker has locked is free after this time, and no earlier."""
    dead_within: float = 30.0
    """After the last fault: nothing is locked by the dead any more."""
    due_within: float = 30.0
    """A ready job runs within this time after the last fault."""
    waits_within: float = 6.0
    """A pool with a free slot takes a ready job within this time: a poll interval, on a busy machine."""
    told_within: float = 2.0
    """A worker that listens starts nothing that is paused after this time."""
    looks_within: float = 7.0
    """The same behind a pooler, where it looks every five seconds."""
    deaf_for: float = 35.0
    """After a partition a worker may believe for so long that it listens, and looks every half minute."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    seed: int
    workers: list[Worker]
    added: list[Added]
    runs: list[Run]
    faults: list[Fault]
    jobs: list[JobRow]
    queues: list[QueueRow]
    ends: list[FinishedRow] | None = None
    """None: what was kept is not judged."""
    pauses: list[Paused] = []
    waited: list[Waited] = []
    """Ready jobs that no one took for a while."""
    last_fault_at: float
    seen_at: float
    """When `jobs` and `queues` were read."""
    limits: Limits
    called_at: float | None = None
    """When jobs were added for every pool, to see that it takes some; None: not done."""
    is_held: bool = False
    """Whether jobs should have been held. Then second runs need a closer excuse: see `lost_runs`."""
    least_held: int = 1
    """How many jobs must have been held if any should."""
