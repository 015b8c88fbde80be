"""Litestar: a plugin with a client, and if wanted a worker, for the lifetime of the application.

Handlers get the client as the dependency `jobs`:

    app = Litestar(route_handlers=[...], plugins=[GraphileWorkerPlugin(worker=True, task_list=[welcome])])

    @post("/users")
    async def create_user(jobs: NamedDependency[WorkerUtils]) -> None:
        await jobs.add_job("welcome", {"id": 1})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from litestar.di import Provide
    from litestar.plugins import InitPlugin
except ImportError as error:  # pragma: no cover
    raise ImportError("graphile_worker.contrib.litestar needs Litestar: pip install litestar") from error

from ..client import WorkerUtils
from .starlette import GraphileWorkerApp

if TYPE_CHECKING:
    from litestar.config.app import AppConfig
__all__ = ["GraphileWorkerPlugin"]


class GraphileWorkerPlugin(InitPlugin):
    """Adds the lifespan, and the dependency `jobs`: the client of the application.

    Takes the arguments of `GraphileWorkerApp`.
    """

    def __init__(self, *, dependency_key: str = "jobs", **arguments: Any) -> None:
        self.app = GraphileWorkerApp(**arguments)
        """Client and worker."""
        self._dependency_key = dependency_key

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        app_config.lifespan = [*(app_config.lifespan or ()), self.app.lifespan]
        app_config.dependencies = {
            **(app_config.dependencies or {}),
            self._dependency_key: Provide(lambda: self.app.utils, sync_to_thread=False),
        }
        app_config.signature_namespace = {
            **(app_config.signature_namespace or {}),
            "WorkerUtils": WorkerUtils,
        }
        return app_config
