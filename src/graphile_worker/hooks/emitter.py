"""Events: the place where observers register and the worker announces what happened.

Observers cannot change or break anything: an exception in one is logged and the worker goes on. A coroutine
function may observe too; it runs as a task of its own and is waited for when the worker ends.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar, overload
from weakref import WeakSet

from ..errors import ConfigError
from .events import EVENT_TYPES, Event

E = TypeVar("E", bound=Event)
Handler = Callable[[E], Any]

DRAIN_WITHIN = 5.0  # seconds

logger = logging.getLogger("graphile_worker.events")


class Events:
    """Observers by event type; the same object may serve several workers."""

    def __init__(self) -> None:
        self._handlers: dict[type[Event], list[Handler[Any]]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._runs: WeakSet[RunEvents] = WeakSet()
        self._found: dict[type[Event], tuple[Handler[Any], ...]] = {}  # what `_handlers_of` said
        self._left: set[asyncio.Task[Any]] = set()  # those that are no longer waited for
        self.observed: set[type[Event]] = set()
        """The events that anybody observes; looked at on the hot path before an event is built."""

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
        """Forget a handler; nothing happens if it was not registered."""
        handlers = self._handlers.get(_event_type(event), [])
        if handler in handlers:
            handlers.remove(handler)
        self._update_observed()

    def wants(self, event: type[Event]) -> bool:
        """Whether anybody observes this event."""
        return event in self.observed

    def emit(self, event: Event) -> None:
        """Tell every observer of this event, in the order in which they registered.

        What is no Exception, as of sys.exit(), is raised when all of them were told.
        """
        kind = type(event)
        handlers = self._found.get(kind)
        if handlers is None:
            handlers = self._found[kind] = self._handlers_of(kind)
        self._tell(event, handlers)

    def _tell(self, event: Event, handlers: Iterable[Handler[Any]]) -> None:
        fault: BaseException | None = None
        for handler in handlers:
            try:
                result = handler(event)
                if inspect.iscoroutine(result):
                    self._start(result)
            except Exception:
                logger.exception("an observer of %s failed", event.name)
            except BaseException as error:
                fault = fault or error
        if fault is not None:
            raise fault

    def _handlers_of(self, kind: type[Event]) -> tuple[Handler[Any], ...]:
        return (*self._handlers.get(kind, ()), *self._handlers.get(Event, ()))

    def _wanted(self) -> set[type[Event]]:
        if self._handlers.get(Event):
            return set(EVENT_TYPES.values())
        return {kind for kind, handlers in self._handlers.items() if handlers}

    def _update_observed(self) -> None:
        """Bring `observed` up to date in place, as loops hold on to it."""
        wanted = self._wanted()
        self.observed |= wanted
        self.observed &= wanted
        self._found.clear()
        for run in self._runs:
            run._update_observed()

    def _start(self, coroutine: Any) -> None:
        name = f"graphile-worker observer {getattr(coroutine, '__qualname__', '')}".rstrip()
        task = asyncio.get_running_loop().create_task(_observe(coroutine), name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._left.discard(task)

    def excuse_current(self) -> None:
        """If the caller is an observer, do not wait for it: it waits itself for the worker to end."""
        current = asyncio.current_task()
        if current is not None:
            self._running.discard(current)

    async def drain(self, within: float = DRAIN_WITHIN, *, unless: asyncio.Event | None = None) -> None:
        """Wait for observers that are coroutines and still run.

        After `within` seconds, or once `unless` is set, those that are left are no longer waited for.
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
            logger.warning("an observer has not ended and is left behind: %s", task.get_name())
        self._left |= self._running  # asyncio itself does not keep tasks alive
        self._running = set()


async def _observe(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run an observer to its end; what it raises is logged.

    SystemExit and the like, left to asyncio, would end the event loop and with it the worker.
    """
    try:
        await coroutine
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        logger.error("an observer failed", exc_info=error)


class RunEvents(Events):
    """The events of one run: its plugins observe here, before those who observe the object that was given.

    What a plugin registers for a run is gone with it, and hears nothing of other runs of the same object.
    """

    def __init__(self, given: Events) -> None:
        super().__init__()
        self.given = given
        self._left = given._left  # they may outlive the run
        given._runs.add(self)
        self._update_observed()

    def _handlers_of(self, kind: type[Event]) -> tuple[Handler[Any], ...]:
        return (*super()._handlers_of(kind), *self.given._handlers_of(kind))

    def _wanted(self) -> set[type[Event]]:
        return super()._wanted() | self.given._wanted()

    def emit_to_plugins(self, event: Event) -> None:
        """Tell the observers of this run alone."""
        self._tell(event, super()._handlers_of(type(event)))


def emit_once(runs: Iterable[Events], event: Event) -> None:
    """Tell several runs of something about the process; who observes more than one of them hears it once."""
    told: set[int] = set()
    for run in runs:
        given = run.given if isinstance(run, RunEvents) else run
        if id(given) not in told:
            told.add(id(given))
            run.emit(event)
        elif isinstance(run, RunEvents):
            run.emit_to_plugins(event)


def _event_type(event: type[Event] | str) -> type[Event]:
    if not isinstance(event, str):
        return event
    try:
        return EVENT_TYPES[event]
    except KeyError:
        raise ConfigError(f"unknown event {event!r}; known: {', '.join(sorted(EVENT_TYPES))}") from None
