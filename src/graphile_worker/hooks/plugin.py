"""Hooks: everything that watches or steers one worker or client; plugins put their parts into it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from .emitter import Events
from .interceptors import AfterRun, BeforeAdd, BeforeRun, OnRecovery, resolve

if TYPE_CHECKING:
    from ..spec import JobSpec


class Plugin(Protocol):
    """A bundle of observers and interceptors."""

    def install(self, hooks: Hooks) -> None:
        """Put observers and interceptors into `hooks`; called once, before anything starts."""
        ...


class Hooks:
    """Observers (`events`) and interceptors of one worker or client."""

    def __init__(self, *, events: Events | None = None, plugins: Iterable[Plugin] = ()) -> None:
        self.events = events if events is not None else Events()
        self.interceptors_before_add: list[BeforeAdd] = []
        self.interceptors_before_run: list[BeforeRun] = []
        self.interceptors_after_run: list[AfterRun] = []
        self.interceptors_on_recovery: list[OnRecovery] = []
        for plugin in plugins:
            plugin.install(self)

    def before_add(self, interceptor: BeforeAdd) -> BeforeAdd:
        """See, change or refuse jobs before they are added through this client or worker."""
        self.interceptors_before_add.append(interceptor)
        return interceptor

    def before_run(self, interceptor: BeforeRun) -> BeforeRun:
        """Decide before a task is called whether it is."""
        self.interceptors_before_run.append(interceptor)
        return interceptor

    def after_run(self, interceptor: AfterRun) -> AfterRun:
        """See how a task ended, before that is written."""
        self.interceptors_after_run.append(interceptor)
        return interceptor

    def on_recovery(self, interceptor: OnRecovery) -> OnRecovery:
        """Decide about each job of a dead worker."""
        self.interceptors_on_recovery.append(interceptor)
        return interceptor

    async def intercept_add(self, spec: JobSpec) -> JobSpec:
        """The spec after every `before_add` interceptor has seen it."""
        for interceptor in self.interceptors_before_add:
            changed = await resolve(interceptor(spec))
            if changed is not None:
                spec = changed
        return spec
