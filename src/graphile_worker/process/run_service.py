"""Runs a worker as this process or as several: the one way for the command and for `serve`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..config.settings import ANY_ADDRESS
from ..logs.log_format import PipeHandler
from .reload import Reload
from .signals import ParentProcess
from .systemd import Systemd

if TYPE_CHECKING:
    from ..hooks import Plugin
    from .http.worker_processes import HealthServerProcess
    from .run_worker import OpenPlugin
    from .systemd.reporter import Reporter
    from .systemd.supervising import SystemdParent

UNKNOWN_GRACE = 600.0  # seconds; a process whose event loop is blocked ends itself after its own grace
KILL_MARGIN = 20.0  # seconds after the grace, in which a process forces its tasks, writes and exits


@dataclass(frozen=True, slots=True)
class Service:
    """What to run, and how."""

    make_arguments: Callable[[], dict[str, Any]]
    """Returns the arguments of `run` or `run_once`; called in each worker process."""
    parent: ParentProcess
    grace: float | None = None
    """The grace of the worker; None if only its app knows."""
    once: bool = False
    processes: int = 1
    health_file: str | None = None
    http_port: int | None = None
    http_address: str = ANY_ADDRESS
    database_metrics: bool = False
    handler: PipeHandler | None = None
    """The log's handler, if this package has set up the log."""
    reload: Reload = field(default_factory=Reload)
    systemd: Systemd = field(default_factory=Systemd)

    @property
    def notifies(self) -> bool:
        """Whether systemd is told about this worker: only of its main process, and not with `once`."""
        return bool(self.systemd) and not self.parent and not self.once

    @property
    def serves_http(self) -> bool:
        """A short run serves nothing."""
        return self.http_port is not None and not self.once


def run_service(service: Service) -> int:
    """Run until stopped, or until no job is ready (`once`); returns the exit status."""
    if not service.parent and not service.once:
        service.reload.enable()
        service.reload.environment |= service.systemd.variables
    if service.processes == 1:
        return _work(service)
    from . import run_worker  # noqa: F401 — imported once, before the fork
    from .error_report import reported
    from .processes import supervise

    health_server: HealthServerProcess | None = None
    if service.serves_http and service.http_port is not None:
        from .http.worker_processes import HealthServerProcess

        health_server = HealthServerProcess(service.http_address, service.http_port, service.processes)
    systemd: SystemdParent | None = None
    if service.notifies:
        from .systemd.supervising import SystemdParent

        systemd = SystemdParent(service.systemd, service.processes)
    return supervise(
        service.processes,
        lambda: reported(lambda: _work(service, health_server, systemd)),
        replace=not service.once,
        kill_after=(UNKNOWN_GRACE if service.grace is None else service.grace) + KILL_MARGIN,
        reload=service.reload,
        helper=health_server,
        systemd=systemd,
    )


def _work(
    service: Service, health_server: HealthServerProcess | None = None, systemd: SystemdParent | None = None
) -> int:
    """Run a worker in this process.

    If it is one of several, `health_server` serves HTTP and `systemd` notifies.
    """
    from .run_worker import run_worker

    service.parent.attach()
    arguments = service.make_arguments()
    plugins: list[Plugin] = []
    server: OpenPlugin | None = None
    if service.health_file is not None and not service.once:
        from .health_plugin import HealthFilePlugin

        plugins.append(HealthFilePlugin(service.health_file))
    if service.serves_http:
        from .http.process_state import metrics_plugins

        server = _http_plugin(service, health_server)
        plugins += [server, *metrics_plugins(of_database=service.database_metrics)]
    if (reporter := _reporter(service, systemd)) is not None:
        plugins.append(reporter)
    if plugins:
        arguments = {**arguments, "plugins": (*arguments.get("plugins", ()), *plugins)}
    return run_worker(
        arguments,
        service.handler,
        once=service.once,
        reload=service.reload,
        server=server,
        reporter=reporter,
    )


def _reporter(service: Service, systemd: SystemdParent | None) -> Reporter | None:
    """What reports to systemd, or to the parent process; None if nothing does."""
    if not service.notifies:
        return None
    from .systemd.notifications import Notifications
    from .systemd.reporter import Reporter

    receiver = Notifications(service.systemd.address) if systemd is None else systemd.pipe()
    return Reporter(receiver, service.systemd.watchdog, may_reload=lambda: service.reload.is_enabled)


def _http_plugin(service: Service, health_server: HealthServerProcess | None) -> OpenPlugin:
    if health_server is not None:
        from .http.reports import ReportingPlugin

        return ReportingPlugin(health_server.path)
    from .http.plugin import HttpPlugin

    return HttpPlugin(service.http_port or 0, service.http_address)
