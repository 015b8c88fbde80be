"""Flask: a blocking client for the application, in its own transaction if wanted, and our commands.

    jobs = GraphileWorker(app)

    @app.post("/users")
    def create_user():
        db.session.add(user)
        current_jobs(db.session).add_job("welcome", {"id": 1})
        db.session.commit()

`flask graphile-worker` is the command `graphile-worker` with the settings of the application.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

try:
    from flask import current_app
except ImportError as error:  # pragma: no cover
    raise ImportError("graphile_worker.contrib.flask needs Flask: pip install flask") from error

from ..client.sync_worker_utils import SyncWorkerUtils, make_sync_worker_utils
from ..hooks import Hooks
from .web_settings import as_environment, client_arguments, options_in, worker_command

if TYPE_CHECKING:
    from flask import Flask

    from ..values.job import Job
    from ..values.outcome import Outcome

EXTENSION = "graphile_worker"


class GraphileWorker:
    """The extension. `init_app` may be called later, and for several applications.

    Settings of `app.config` with the prefix `GRAPHILE_WORKER_` are options: `GRAPHILE_WORKER_SCHEMA`,
    `GRAPHILE_WORKER_CONNECTION_STRING`, and for the commands `GRAPHILE_WORKER_CONCURRENCY` and all others.
    Arguments here take precedence.
    """

    def __init__(self, app: Flask | None = None, *, hooks: Hooks | None = None, **options: Any) -> None:
        self._hooks = hooks
        self._options = options
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Register with an application: its client, and the command group."""
        options = {**options_in(app.config), **self._options}
        app.extensions[EXTENSION] = _Registered(options, self._hooks)
        app.cli.add_command(worker_command(lambda: os.environ.update(as_environment(options))))


class _Registered:
    """What one application has. The client opens nothing before its first call, also after a fork."""

    def __init__(self, options: dict[str, Any], hooks: Hooks | None) -> None:
        self._options = client_arguments(options)
        self._hooks = hooks
        self.utils = make_sync_worker_utils(**self._options, hooks=hooks)

    def bound(self, session: Any) -> SyncWorkerUtils:
        return SyncWorkerUtils.bound(session, schema=self.utils.schema.name, hooks=self.utils.hooks)


class AppContext:
    """A plugin for workers: every task runs in the context of the application.

    `App(plugins=[AppContext(app)], tasks=...)`; tasks can then use `current_app`, `db.session` and so on.
    """

    def __init__(self, app: Flask) -> None:
        self._app = app

    def install(self, hooks: Hooks) -> None:
        """Called when the worker starts."""

        @hooks.around_run
        async def in_context(job: Job, call_next: Callable[[], Awaitable[Outcome]]) -> Outcome:
            with self._app.app_context():
                return await call_next()


def current_jobs(session: Any = None) -> SyncWorkerUtils:
    """The client of the current application; with a session or connection, one in its transaction.

    `current_jobs(db.session)` works with Flask-SQLAlchemy.
    """
    registered = current_app.extensions.get(EXTENSION)
    if registered is None:
        raise RuntimeError("GraphileWorker is not registered with this application; call init_app(app)")
    utils: SyncWorkerUtils = registered.utils if session is None else registered.bound(session)
    return utils
