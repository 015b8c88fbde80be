"""How one run of a job ended, as plain values between the rooms `execute` and `sink`.

`None` stands for success, because that is what nearly every job comes to and it costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..errors import describe
from ..job import Job

MAX_MESSAGE = (
    100_000  # characters of last_error; a message of megabytes helps nobody and is fetched each time
)


class Failed(msgspec.Struct, frozen=True):
    """The task failed; with `remaining_payload`, a batch job keeps only the items that failed."""

    error: BaseException
    batch_errors: Sequence[BaseException] | None = None
    remaining_payload: str | None = None

    @property
    def message(self) -> str:
        """The text for `last_error`."""
        return storable(describe(self.error))


class Interrupted(msgspec.Struct, frozen=True):
    """The worker stopped before the task ended; the job goes back and the attempt does not count."""

    error: BaseException

    @property
    def message(self) -> str:
        """The text for `last_error`; empty for a job that was never started."""
        return storable(str(self.error))


def storable(text: str) -> str:
    """The text in a form that PostgreSQL can store: no NUL, no lone surrogates, not too long."""
    text = text[:MAX_MESSAGE].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")


Outcome = Failed | Interrupted | None


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A job whose run is over, on its way to the database."""

    job: Job
    outcome: Outcome
    worker_id: str
    duration: float
