"""The worker's side of `graphile-worker health`: its event loop writes the file again and again."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import time
from contextlib import suppress

import msgspec

from ...errors import ConfigError
from ...hooks import Hooks
from ...hooks.events import PoolCreated, PoolListenEcho, PoolListenReleased, PoolReleased
from .health_file import Heartbeat

BEAT_INTERVAL = 2.0
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SIZE = 256
"""Bytes of the file, always the same, so that one write replaces all of it."""

logger = logging.getLogger("graphile_worker.health")


class HeartbeatPlugin:
    """Writes the file as long as the pool lives; observers and a task on the worker's own event loop."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}.{os.getpid()}"
        self._file: int | None = None
        self._pool_id = ""
        self._listened_at: float | None = None
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def install(self, hooks: Hooks) -> None:
        """Open the file, so that a path that cannot be written is found at the start."""
        self._file = self._open()
        hooks.events.on(PoolCreated, self._created)
        hooks.events.on(PoolListenEcho, self._heard)
        hooks.events.on(PoolListenReleased, self._left)
        hooks.events.on(PoolReleased, self._released)

    def _open(self) -> int:
        # Locked before it gets its name: a file that nobody holds is taken for one that a dead process left.
        # The folder may be everybody's, as /tmp is: only a file that we have made ourselves is written to.
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
                f"health_file: {self._path} cannot be written: {error.strerror}; choose a path in a folder "
                "that the worker may write to"
            ) from error
        return descriptor

    def _created(self, event: PoolCreated) -> None:
        self._pool_id = event.pool_id
        self._task = asyncio.get_running_loop().create_task(self._beat(), name="graphile-worker health")

    def _heard(self, _: PoolListenEcho) -> None:
        self._listened_at = time.monotonic()
        self._write()

    def _left(self, _: PoolListenReleased) -> None:
        self._stopping = True
        self._write()

    def _released(self, _: PoolReleased) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._file is not None:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            os.close(self._file)
            self._file = None

    async def _beat(self) -> None:
        while True:
            self._write()
            await asyncio.sleep(BEAT_INTERVAL)

    def _write(self) -> None:
        if self._file is None:
            return
        beat = Heartbeat(
            pid=os.getpid(),
            pool_id=self._pool_id,
            turned_at=time.monotonic(),
            listened_at=self._listened_at,
            stopping=self._stopping,
        )
        try:
            os.pwrite(self._file, msgspec.json.encode(beat).ljust(SIZE), 0)
        except OSError as error:  # a full disk must not end the worker; the health check will notice
            logger.warning("the health file %s cannot be written: %s", self._path, error.strerror)
