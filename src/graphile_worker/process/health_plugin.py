"""Writes the health file from the worker's event loop, so that a blocked loop shows.

What blocks the loop is added by the thread of the watchdog.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import threading
import time
from contextlib import suppress

import msgspec

from ..errors import ConfigError, WorkerUnhealthyError
from ..hooks import Hooks, WorkerContext
from ..hooks.events import PoolCreated, PoolFatalError, PoolListenEcho, PoolListenReleased, PoolReleased
from ..hooks.faults import Supervised
from ..hooks.hooks import LivePool
from ..values.text import count
from .health_file import HealthRecord

WRITE_INTERVAL = 2.0
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SIZE = 1024
"""Constant size of the file in bytes, so that one write replaces its whole content."""

logger = logging.getLogger("graphile_worker.health")


class HealthFilePlugin:
    """Writes the file every two seconds while the pool is alive, and whenever LISTEN is confirmed."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}.{os.getpid()}"
        self._file: int | None = None
        self._pool_id = ""
        self._listened_at: float | None = None
        self._stopping = False
        self._unhealthy: str | None = None
        self._pool: LivePool | None = None
        self._loop = Supervised(self._run, "health")
        self._turned_at = 0.0
        self._mutex = threading.Lock()

    def install(self, hooks: Hooks) -> None:
        """Open the file now, so that a path that cannot be written stops the start."""
        self._file = self._open()
        hooks.events.on(PoolCreated, self._on_created)
        hooks.events.on(PoolListenEcho, self._on_listen_echo)
        hooks.events.on(PoolListenReleased, self._on_listen_released)
        hooks.events.on(PoolReleased, self._on_released)
        hooks.events.on(PoolFatalError, self._on_fatal_error)
        hooks._on_loop_blocked(self._on_loop_blocked)

    async def start(self, worker: WorkerContext) -> None:
        """Remember the pool."""
        self._pool = worker.pool

    def _open(self) -> int:
        # Locked before it gets its name: an unlocked file counts as left by a dead process. Others may write
        # to the directory, as to /tmp, so we only ever write to a file that we have created.
        fresh = f"{self._path}.{secrets.token_hex(8)}.new"
        descriptor: int | None = None
        try:
            os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
            descriptor = os.open(fresh, NEW_FILE, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.replace(fresh, self._path)
        except OSError as error:
            if descriptor is not None:
                os.close(descriptor)
                os.unlink(fresh)
            raise ConfigError(
                f"health_file: {self._path} cannot be written: {error.strerror}; choose a directory that "
                "the worker can write to"
            ) from error
        return descriptor

    def _on_created(self, event: PoolCreated) -> None:
        self._pool_id = event.pool_id
        self._loop.start()

    def _on_listen_echo(self, _: PoolListenEcho) -> None:
        self._listened_at = time.monotonic()
        self._write()

    def _on_listen_released(self, _: PoolListenReleased) -> None:
        self._stopping = True
        self._write()

    def _on_fatal_error(self, event: PoolFatalError) -> None:
        if isinstance(event.error, WorkerUnhealthyError):
            number = len(event.error.tasks)
            self._unhealthy = f"{count(number, 'task')} did not end when asked to"
            self._write()

    def _on_released(self, _: PoolReleased) -> None:
        self._loop.cancel()
        with self._mutex:
            file, self._file = self._file, None
            if file is not None:
                with suppress(FileNotFoundError):
                    os.unlink(self._path)
                os.close(file)

    async def _run(self) -> None:
        while True:
            self._write()
            await asyncio.sleep(WRITE_INTERVAL)

    def _write(self) -> None:
        self._turned_at = time.monotonic()
        self._save(None, None)

    def _on_loop_blocked(self, culprit: str, since: float) -> None:
        """Called in the watchdog's thread."""
        self._save(culprit, since)

    def _save(self, blocked_by: str | None, blocked_since: float | None) -> None:
        record = HealthRecord(
            pid=os.getpid(),
            pool_id=self._pool_id,
            turned_at=self._turned_at,
            listened_at=self._listened_at,
            stopping=self._stopping,
            blocked_by=blocked_by,
            blocked_since=blocked_since,
            stalled_since=None if self._pool is None else self._pool.stalled_since,
            unhealthy=self._unhealthy,
        )
        try:
            with self._mutex:
                if self._file is not None:
                    os.pwrite(self._file, msgspec.json.encode(record).ljust(SIZE), 0)
        except OSError as error:  # a full disk must not stop the worker; the health check will notice
            logger.warning("the health file %s cannot be written: %s", self._path, error.strerror)
