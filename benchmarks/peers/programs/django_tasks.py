"""Django's tasks with the backend for databases: one job at a time; it looks every 50 ms when idle."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import django
from benchmarks.peers.program import django_database, main, meter
from django.conf import settings
from django.db import transaction

os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # nothing else runs on the event loop
logging.getLogger("django_tasks_db").setLevel(logging.ERROR)
logging.getLogger("django.tasks").setLevel(logging.ERROR)
settings.configure(
    DATABASES={"default": django_database()},
    INSTALLED_APPS=["django_tasks_db"],
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.tasks import task  # noqa: E402
from django_tasks_db.management.commands.db_worker import Worker  # noqa: E402


@task()
def bench(number: int) -> None:
    meter.hit()


def worker(*, batch: bool) -> Any:
    """What `manage.py db_worker` runs, without its signal handlers."""
    return Worker(
        queue_names=["default"],
        interval=0.05,
        batch=batch,
        backend_name="default",
        startup_delay=False,
        max_tasks=None,
        worker_id="bench",
        excluded_queue_names=[],
    )


class Peer:
    async def setup(self) -> None:
        call_command("migrate", verbosity=0)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        yield

    async def add(self, number: int) -> None:
        bench.enqueue(number)

    async def add_many(self, numbers: range) -> None:
        with transaction.atomic():
            for number in numbers:
                bench.enqueue(number)

    async def drain(self) -> None:
        worker(batch=True).run()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        threading.Thread(target=worker(batch=False).run, daemon=True).start()
        yield


if __name__ == "__main__":
    main(Peer())
