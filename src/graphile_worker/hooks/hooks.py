"""Hooks: everything that watches or steers one worker or client; plugins put their parts into it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from .emitter import Events, RunEvents
from .interceptors import AfterRun, BeforeAdd, BeforeRun, OnRecovery, resolve

if TYPE_CHECKING:
    from ..spec import JobSpec


_INTERCEPTORS = (
    "interceptors_before_add",
    "interceptors_before_run",
    "interceptors_after_run",
    "interceptors_on_recovery",
)


class Plugin(Protocol):
    """A bundle of observers and interceptors."""

    def install(self, hooks: Hooks) -> None:
        """Put observers and interceptors into `hooks`; called once per run, before anything starts."""
        ...


class Hooks:
    """Observers (`events`) and interceptors of one worker or client."""

    def __init__(self, *, events: Events | None = None, plugins: Iterable[Plugin] = ()) -> None:
        self.events = events if events is not None else Events()
        self.interceptors_before_add: list[BeforeAdd] = []
        self.interceptors_before_run: list[BeforeRun] = []
        self.interceptors_after_run: list[AfterRun] = []
        self.interceptors_on_recovery: list[OnRecovery] = []
        self._runs: WeakSet[Hooks] = WeakSet()
        for plugin in plugins:
            plugin.install(self)

    def for_run(self) -> Hooks:
        """The same for one run: plugins that are installed there are gone with it.

        What is added here later, while it runs, is added there too.
        """
        run = Hooks(events=RunEvents(self.events))
        for kind in _INTERCEPTORS:
            getattr(run, kind).extend(getattr(self, kind))
        self._runs.add(run)
        return run

    def _add(self, kind: str, interceptor: Any) -> None:
        getattr(self, kind).append(interceptor)
        for run in self._runs:
            run._add(kind, interceptor)

    def before_add(self, interceptor: BeforeAdd) -> BeforeAdd:
        """See, change or refuse jobs before they are added through this client or worker."""
        self._add("interceptors_before_add", interceptor)
        return interceptor

    def before_run(self, interceptor: BeforeRun) -> BeforeRun:
        """Decide before a task is called whether it is."""
        self._add("interceptors_before_run", interceptor)
        return interceptor

    def after_run(self, interceptor: AfterRun) -> AfterRun:
        """See how a task ended, before that is written."""
        self._add("interceptors_after_run", interceptor)
        return interceptor

    def on_recovery(self, interceptor: OnRecovery) -> OnRecovery:
        """Decide about each job of a dead worker."""
        self._add("interceptors_on_recovery", interceptor)
        return interceptor

    async def intercept_add(self, spec: JobSpec) -> JobSpec:
        """The spec after every `before_add` interceptor has seen it."""
        for interceptor in self.interceptors_before_add:
            changed = await resolve(interceptor(spec))
            if changed is not None:
                spec = changed
        return spec
