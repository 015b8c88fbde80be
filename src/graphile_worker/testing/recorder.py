"""EventRecorder: records every event of a worker, and waits for the ones a test needs.

recorder = EventRecorder()
async with run(..., events=recorder.events):
    await recorder.wait_for(JobSucceeded, count=3)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..hooks import Events
from ..hooks.events import Event

E = TypeVar("E", bound=Event)

_PATIENCE = 60.0  # seconds after which a waiting test is considered stuck


class EventRecorder:
    """Records the events of one `Events` object, a new one by default."""

    def __init__(self, events: Events | None = None) -> None:
        self.events: Events = events if events is not None else Events()
        """Pass this to the worker."""
        self.seen: list[Event] = []
        """All events so far, in order."""
        self._changed = asyncio.Event()
        self.events.on(Event, self._record)

    def of(self, *kinds: type[E]) -> list[E]:
        """The events of these classes so far, in order."""
        return [event for event in self.seen if isinstance(event, kinds)]

    def count(self, kind: type[Event]) -> int:
        """Number of events of a class so far."""
        return len(self.of(kind))

    @property
    def names(self) -> list[str]:
        """The names of all events so far, in order."""
        return [event.name for event in self.seen]

    async def wait_for(
        self,
        kind: type[E],
        *,
        count: int = 1,
        timeout: float = _PATIENCE,
        matching: Callable[[E], bool] | None = None,
    ) -> E:
        """Wait for the `count`-th (matching) event of a class, and return it."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    found = [event for event in self.of(kind) if matching is None or matching(event)]
                    if len(found) >= count:
                        return found[count - 1]
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(
                f"waited {timeout} s for {count} of {kind.__name__}, saw {self.count(kind)}; "
                f"the last events: {self._last_names()}"
            ) from None

    def clear(self) -> None:
        """Forget all events so far."""
        self.seen.clear()

    def close(self) -> None:
        """Stop recording."""
        self.events.off(Event, self._record)

    def _record(self, event: Any) -> None:
        self.seen.append(event)
        self._changed.set()

    def _last_names(self) -> Sequence[str]:
        return self.names[-20:]
