"""Waits for files to change, with notifications of the operating system where available."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Any

from ...errors import ConfigError
from .files import Fingerprint, WatchedFiles, changed_files

CHECK_INTERVAL = 2.0  # seconds; some file systems, such as network mounts, send no notifications
INSTALL_COMMAND = 'pip install "graphile-worker[watch]"'

logger = logging.getLogger("graphile_worker.watch")


class Changes:
    """Remembers the files at the last snapshot, and waits until they differ."""

    def __init__(self, files: WatchedFiles) -> None:
        self.files = files
        self._awatch = _import_awatch()
        self._snapshot: Fingerprint = {}

    def take_snapshot(self) -> None:
        """Compare with the files as they are now. Call it before the code is loaded, not after."""
        self._snapshot = self.files.fingerprint()

    async def wait(self) -> list[str]:
        """Wait until files differ; returns them."""
        while not (changed := self._changed()):
            directories = self.files.directories()
            try:
                await self._wait_for_notification(directories)
            except (OSError, RuntimeError) as error:  # out of watches, or a directory was just deleted
                logger.debug("no file notifications (%s); checking every second", error)
                await asyncio.sleep(1.0)
        return changed

    async def _wait_for_notification(self, directories: list[str]) -> None:
        """Wait until files or directories differ. Watches first and compares then, to miss no change."""
        reports: Any = self._awatch(
            *directories,
            watch_filter=None,
            recursive=False,
            rust_timeout=int(CHECK_INTERVAL * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        async with aclosing(reports):
            async for _ in reports:
                if self._changed() or self.files.directories() != directories:
                    return

    def _changed(self) -> list[str]:
        return changed_files(self._snapshot, self.files.fingerprint())


def _import_awatch() -> Any:
    try:
        from watchfiles import awatch
    except ImportError:
        raise ConfigError(
            f"watching files needs the package watchfiles; install it with: {INSTALL_COMMAND}"
        ) from None
    return awatch
