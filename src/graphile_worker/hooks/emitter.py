"""Events: where observers register, and the worker emits what happened.

Observers cannot change or break anything: whatever one raises, even SystemExit, is logged and the worker
carries on. A coroutine function may observe too. It runs as its own asyncio task, and the worker waits for
it before it ends.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar, overload
from weakref import WeakSet

from ..errors import ConfigError
from ..values.job import Job
from .events import EVENT_TYPES, Event
from .faults import is_our_end, report

E = TypeVar("E", bound=Event)
Handler = Callable[[E], Any]

DRAIN_WITHIN = 5.0  # seconds

logger = logging.getLogger("graphile_worker.events")


class Events:
    """Observers by event type; one object may serve several workers.

    Applications use `on`, `off` and `emit`. The rest is for the engine.
    """

    def __init__(self) -> None:
        self._handlers: dict[type[Event], list[Handler[Any]]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._runs: WeakSet[RunEvents] = WeakSet()
        self._handler_cache: dict[type[Event], tuple[Handler[Any], ...]] = {}
        self._abandoned: set[asyncio.Task[Any]] = set()
        self.observed: set[type[Event]] = set()
        """The events that have observers; the hot path checks it before it builds an event."""

    @overload
    def on(self, event: type[E], handler: Handler[E]) -> Handler[E]: ...
    @overload
    def on(self, event: str, handler: Handler[Any]) -> Handler[Any]: ...
    @overload
    def on(self, event: type[E], handler: None = None) -> Callable[[Handler[E]], Handler[E]]: ...
    @overload
    def on(self, event: str, handler: None = None) -> Callable[[Handler[Any]], Handler[Any]]: ...
    def on(self, event: type[Any] | str, handler: Handler[Any] | None = None) -> Any:
        """Call `handler` at every `event`: a class, `Event` for all, or an upstream name like "job:start".

        Without a handler it is a decorator.
        """
        if handler is None:
            return lambda function: self.on(event, function)
        kind = _event_type(event)
        self._handlers.setdefault(kind, []).append(handler)
        self._update_observed()
        return handler

    def off(self, event: type[Event] | str, handler: Handler[Any]) -> None:
        """Remove a handler; does nothing if it was not registered."""
        handlers = self._handlers.get(_event_type(event), [])
        if handler in handlers:
            handlers.remove(handler)
        self._update_observed()

    def emit(self, event: Event) -> None:
        """Call every observer of this event, in the order in which they registered; never raises."""
        kind = type(event)
        handlers = self._handler_cache.get(kind)
        if handlers is None:
            handlers = self._handler_cache[kind] = self._all_handlers(kind)
        self._call(handlers, event)

    def _call(self, handlers: Iterable[Handler[Any]], event: Event) -> None:
        for handler in handlers:
            try:
                result = handler(event)
                if inspect.iscoroutine(result):
                    self._start(result)
            except BaseException as error:  # from a plain function: not even CancelledError is meant for us
                report(logger, "an observer of %s failed%s", event.name, _about(event), error=error)

    def wants(self, event: type[Event]) -> bool:
        """Whether this event has observers."""
        return event in self.observed

    def _own_handlers(self, kind: type[Event]) -> tuple[Handler[Any], ...]:
        return (*self._handlers.get(kind, ()), *self._handlers.get(Event, ()))

    def _all_handlers(self, kind: type[Event]) -> tuple[Handler[Any], ...]:
        return tuple(handler for source in self._sources() for handler in source._own_handlers(kind))

    def _sources(self) -> list[Events]:
        """The objects whose observers are called for events that are emitted here."""
        return [self]

    def _handled_events(self) -> set[type[Event]]:
        if self._handlers.get(Event):
            return set(EVENT_TYPES.values())
        return {kind for kind, handlers in self._handlers.items() if handlers}

    def _update_observed(self) -> None:
        """Update `observed` in place, because loops keep a reference to it."""
        handled = self._handled_events()
        self.observed |= handled
        self.observed &= handled
        self._handler_cache.clear()
        for run in self._runs:
            run._update_observed()

    def _start(self, coroutine: Any) -> None:
        name = f"graphile-worker observer {getattr(coroutine, '__qualname__', '')}".rstrip()
        task = asyncio.get_running_loop().create_task(_observe(coroutine), name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._abandoned.discard(task)

    def _exclude_current_task(self) -> None:
        """Do not wait for the caller if it is an observer: it waits for the worker itself."""
        current = asyncio.current_task()
        if current is not None:
            self._running.discard(current)

    async def _drain(self, within: float = DRAIN_WITHIN, *, unless: asyncio.Event | None = None) -> None:
        """Wait for coroutine observers that are still running.

        After `within` seconds, or once `unless` is set, the remaining ones are abandoned.
        """
        if not self._running:
            return
        loop = asyncio.get_running_loop()
        ends = loop.time() + within
        stopped = None if unless is None else asyncio.ensure_future(unless.wait())
        try:
            while self._running and ends > loop.time() and (stopped is None or not stopped.done()):
                waiting: set[asyncio.Future[Any]] = {*self._running}
                if stopped is not None:
                    waiting.add(stopped)
                await asyncio.wait(waiting, timeout=ends - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if stopped is not None:
                stopped.cancel()
        for task in self._running:
            logger.warning("an observer did not finish in time and is abandoned: %s", task.get_name())
        self._abandoned |= self._running  # asyncio keeps only weak references to tasks
        self._running = set()


def _about(event: Event) -> str:
    """The job of an event, for a log line."""
    job: Job | None = getattr(event, "job", None)
    return "" if job is None else f" for task {job.task_identifier} (job {job.id})"


async def _observe(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run an observer and log what it raises.

    asyncio would let SystemExit and KeyboardInterrupt end the event loop, and the worker with it.
    """
    try:
        await coroutine
    except BaseException as error:
        if is_our_end(error):
            raise
        report(logger, "an observer failed", error=error)


class RunEvents(Events):
    """The events of one run. Its plugins observe here; observers of shared objects are called after them.

    What a plugin registers ends with the run and gets no events of other runs of the same object.
    """

    def __init__(self, shared: Events) -> None:
        super().__init__()
        self._followed: list[Events] = []
        self._abandoned = shared._abandoned  # they may outlive the run
        self.follow(shared)

    def follow(self, shared: Events) -> None:
        """Call the observers of another object too, also those that it gets later."""
        self._followed.append(shared)
        shared._runs.add(self)
        self._update_observed()

    def _sources(self) -> list[Events]:
        followed = (source for shared in self._followed for source in shared._sources())
        return list(dict.fromkeys((self, *followed)))

    def _handled_events(self) -> set[type[Event]]:
        return super()._handled_events().union(*(shared._handled_events() for shared in self._followed))


def emit_once(runs: Iterable[Events], event: Event) -> None:
    """Emit an event about the process to several runs; an observer shared by them is called once."""
    called: set[Events] = set()
    for run in runs:
        sources = [source for source in run._sources() if source not in called]
        called.update(sources)
        run._call([handler for source in sources for handler in source._own_handlers(type(event))], event)


def _event_type(event: type[Event] | str) -> type[Event]:
    if not isinstance(event, str):
        return event
    try:
        return EVENT_TYPES[event]
    except KeyError:
        raise ConfigError(f"unknown event {event!r}; known: {', '.join(sorted(EVENT_TYPES))}") from None
