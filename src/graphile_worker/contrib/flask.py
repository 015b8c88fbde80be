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

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

try:
    from flask import current_app
except ImportError as error:  # pragma: no cover
    raise ImportError("graphile_worker.contrib.flask needs Flask: pip install flask") from error

from ..client.sync_worker_utils import SyncWorkerUtils, make_sync_worker_utils
from ..hooks import Hooks
from .web_settings import client_arguments, options_in, worker_command

if TYPE_CHECKING:
    from flask import Flask

    from ..values.job import Job
    from ..values.outcome import Outcome

__all__ = ["AppContext", "GraphileWorker", "current_jobs"]
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
        # The client opens nothing before its first call, also after a fork.
        app.extensions[EXTENSION] = make_sync_worker_utils(**client_arguments(options), hooks=self._hooks)
        app.cli.add_command(worker_command(options))


class AppContext:
    """A plugin for workers: every task runs in the context of the application.

    `App(plugins=[AppContext(app)], tasks=...)`; tasks can then use `current_app`, `db.session` and so on.
    """

    def __init__(self, app: Flask) -> None:
        self._app = app

    def install(self, hooks: Hooks) -> None:
        @hooks.around_run
        async def in_context(job: Job, call_next: Callable[[], Awaitable[Outcome]]) -> Outcome:
            with self._app.app_context():
                return await call_next()


def current_jobs(session: Any = None) -> SyncWorkerUtils:
    """The client of the current application; with a session or connection, one in its transaction.

    `current_jobs(db.session)` works with Flask-SQLAlchemy.
    """
    utils: SyncWorkerUtils | None = current_app.extensions.get(EXTENSION)
    if utils is None:
        raise RuntimeError("GraphileWorker is not registered with this application; call init_app(app)")
    if session is None:
        return utils
    return SyncWorkerUtils.bound(session, schema=utils.schema.name, hooks=utils.hooks)
