"""Runs a worker as this process or as several: the one way for the command and for `serve`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...config.settings import ProcessOptions
from ...logging.configure import PipeHandler
from .signals import ParentProcess, Reload

if TYPE_CHECKING:
    from ...hooks import Plugin
    from .reports import Observer
    from .run_worker import OpenPlugin
    from .systemd import Systemd

UNKNOWN_GRACE = 600.0  # seconds; a process whose event loop is blocked ends itself after its own grace
KILL_MARGIN = 20.0  # seconds after the grace, in which a process forces its tasks, writes and exits
SYSTEMD_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass(frozen=True, slots=True)
class Service:
    make_arguments: Callable[[], dict[str, Any]]
    """Returns the arguments of `run` or `run_once`; called in each worker process."""
    parent: ParentProcess
    options: ProcessOptions
    grace: float | None = None
    """The grace of the worker; None if only its app knows."""
    once: bool = False
    handler: PipeHandler | None = None
    """The log's handler, if this package has set up the log."""
    reload: Reload = field(default_factory=Reload)

    @property
    def http(self) -> tuple[str, int] | None:
        """The address and port to serve on; a short run serves nothing."""
        port = self.options.http_port
        return None if port is None or self.once else (self.options.http_address, port)


def run_service(service: Service) -> int:
    """Run until stopped, or until no job is ready (`once`); returns the exit status."""
    # Removed from the environment, so that a command which a task starts does not speak for the worker.
    variables = {name: os.environ.pop(name) for name in SYSTEMD_VARIABLES if name in os.environ}
    systemd: Systemd | None = None
    if not service.parent and not service.once:
        service.reload.enable()
        service.reload.environment |= variables
        if variables.get("NOTIFY_SOCKET"):
            from .systemd import Systemd

            systemd = Systemd(variables)
    if service.options.processes == 1:
        return _work(service, lambda: _own_servers(service, systemd))
    return _supervise(service, systemd)


def _supervise(service: Service, systemd: Systemd | None) -> int:
    from . import run_worker  # noqa: F401 — imported once, before the fork
    from .error_report import reported
    from .processes import Supervisor

    processes = service.options.processes
    relay = observer = None
    if systemd is not None:
        from .systemd import Relay

        relay = Relay(systemd)
    if relay is not None or service.http is not None:
        from .reports import Observer

        observer = Observer(processes, http=service.http, relay=relay)
    return Supervisor(
        processes,
        lambda: reported(lambda: _work(service, lambda: _reporting(observer))),
        replace=not service.once,
        kill_after=(UNKNOWN_GRACE if service.grace is None else service.grace) + KILL_MARGIN,
        reload=service.reload,
        observer=observer,
        relay=relay,
    ).run()


def _work(service: Service, make_servers: Callable[[], list[OpenPlugin]]) -> int:
    from .run_worker import run_worker

    service.parent.attach()
    arguments = service.make_arguments()
    servers = make_servers()
    plugins: list[Plugin] = [*servers]
    if service.http is not None:
        from .probes import metrics_plugins

        plugins += metrics_plugins(of_database=service.options.database_metrics)
    if plugins:
        arguments = {**arguments, "plugins": (*arguments.get("plugins", ()), *plugins)}
    return run_worker(arguments, service.handler, once=service.once, reload=service.reload, servers=servers)


def _own_servers(service: Service, systemd: Systemd | None) -> list[OpenPlugin]:
    """What speaks for the only worker process."""
    servers: list[OpenPlugin] = []
    if service.http is not None:
        from .probes import HttpPlugin

        address, port = service.http
        servers.append(HttpPlugin(port, address))
    if systemd is not None:
        from .systemd import SystemdPlugin

        servers.append(SystemdPlugin(systemd, may_reload=lambda: service.reload.is_enabled))
    return servers


def _reporting(observer: Observer | None) -> list[OpenPlugin]:
    """What speaks for one of several worker processes: the observer does, if there is one."""
    if observer is None:
        return []
    from .reports import ReportingPlugin

    return [ReportingPlugin(observer.path)]
