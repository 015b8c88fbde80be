"""The messages between a worker and what runs its tasks: JSON, one message per line.

To a process: calls. From it: an answer to each call, and notes.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..history.progress import ProgressReport
from ..tasks.stacks import TaskStack

RETURNED = -1.0
"""In place of the run time: the call was taken back before it began."""


class CallMessage(msgspec.Struct, array_like=True, frozen=True):
    """One call. The number is the sender's, and comes back with the answer."""

    number: int
    where: str
    job: tuple[Any, ...]
    worker_id: str
    context: tuple[tuple[str, str], ...] = ()
    timeout: float | None = None


class ErrorMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """An exception: its texts, the exception itself if it can be pickled, and where it was raised."""

    module: str
    name: str
    message: str
    pickled: str | None = None
    """Base64."""
    frames: tuple[tuple[str, int, str], ...] = ()
    """File, line and function, the outermost first."""
    notes: tuple[str, ...] = ()
    cause: ErrorMessage | None = None
    context: ErrorMessage | None = None
    hides_context: bool = False


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task returned or raised; nothing for None."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: ErrorMessage | None = None
    batch: tuple[ErrorMessage | None, ...] | None = None
    """The answer of a batch job: for each item None or its error."""
    problem: str | None = None
    """Why the result cannot be sent."""


class Answer(msgspec.Struct, array_like=True, tag=0, frozen=True):
    """The answer to a call: its number, how long the task ran, and what it returned or raised."""

    number: int
    seconds: float
    body: Body | None = None


class LogNote(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """A log record of a job; 0 for none."""

    number: int
    record: dict[str, Any]


class ProgressNote(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """What a task reports about its progress."""

    number: int
    report: ProgressReport


class ReadyNote(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """The process has loaded its tasks and takes calls."""


class MemoryNote(msgspec.Struct, array_like=True, tag=4, frozen=True):
    """How much memory the process uses that runs or ran a call."""

    number: int
    bytes: int


class StartFailure(msgspec.Struct, array_like=True, tag=5, frozen=True):
    """The process cannot start to work."""

    text: str


class StackNote(msgspec.Struct, array_like=True, tag=6, frozen=True):
    """What a call does now."""

    number: int
    stack: TaskStack


class StartedNote(msgspec.Struct, array_like=True, tag=7, frozen=True):
    """A call has begun, on this machine of a cluster."""

    number: int
    place: str
    memory: int | None = None


class LostCall(msgspec.Struct, array_like=True, tag=8, frozen=True):
    """The cluster has no answer to a call, and why."""

    number: int
    text: str


Note = LogNote | ProgressNote | ReadyNote | MemoryNote | StartFailure | StackNote
"""What a process of a worker says beside its answers."""
ClusterNote = LogNote | ProgressNote | MemoryNote | StackNote | StartedNote
"""What a call on a cluster says before its answer."""


class Setup(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process must know before its first call; its first line."""

    parent: int
    """The process id of the worker."""
    path: list[str]
    """`sys.path`."""
    tasks: list[tuple[str, str]]
    """Where each task is found, and its identifier."""
    job_logger: str
    levels: dict[str, int]
    """Levels of loggers by name."""
    initializer: str | None = None
    nice: int | None = None
    max_memory: int | None = None


class Ask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request about a call."""

    number: int
    what: Literal["abort", "cancel", "interrupt", "kill", "stack"]
    """Set its abort signal; cancel it, too; interrupt it; kill it; send a `StackNote`."""
    reason: str = ""


def line(message: msgspec.Struct) -> bytes:
    """The message as it is sent."""
    return msgspec.json.encode(message) + b"\n"


class Lines:
    """Splits a stream into messages of one type; keeps the rest of an incomplete line."""

    def __init__(self, kind: Any) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> list[Any]:
        """The messages that are complete."""
        end = data.rfind(b"\n") + 1
        if end == 0:
            self._rest.append(data)
            return []
        complete = data[:end]
        if self._rest:
            complete = b"".join((*self._rest, complete))
            self._rest.clear()
        if end < len(data):
            self._rest.append(data[end:])
        found: list[Any] = self._decoder.decode_lines(complete)
        return found
