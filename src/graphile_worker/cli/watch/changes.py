"""Waiting for a change of the files, with the operating system's help where it gives any."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Any

from ...errors import ConfigError
from .files import Fingerprint, WatchedFiles, changed_files

LOOK_ANYWAY = 2.0  # seconds: some file systems report nothing, network mounts for one
INSTALL_COMMAND = 'pip install "graphile-worker[watch]"'

logger = logging.getLogger("graphile_worker.watch")


class Changes:
    """Knows how the files were at the last `mark`, and waits until they are different."""

    def __init__(self, files: WatchedFiles) -> None:
        self.files = files
        self._awatch = _import_awatch()
        self._seen: Fingerprint = {}

    def mark(self) -> None:
        """From now on, what is there now is not new. Call it before the code is read, not after."""
        self._seen = self.files.fingerprint()

    async def wait(self) -> list[str]:
        """The files that differ, as soon as there are any."""
        while not (changed := self._changed()):
            folders = self.files.folders()
            try:
                await self._until_reported(folders)
            except (OSError, RuntimeError) as error:  # no more watches to be had, or a folder just deleted
                logger.debug("the system does not report changes (%s); looking every second", error)
                await asyncio.sleep(1.0)
        return changed

    async def _until_reported(self, folders: list[str]) -> None:
        """Until the files or the folders differ; armed first and compared after, so nothing slips through."""
        reports: Any = self._awatch(
            *folders,
            watch_filter=None,
            recursive=False,
            rust_timeout=int(LOOK_ANYWAY * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        async with aclosing(reports):
            async for _ in reports:
                if self._changed() or self.files.folders() != folders:
                    return

    def _changed(self) -> list[str]:
        return changed_files(self._seen, self.files.fingerprint())


def _import_awatch() -> Any:
    try:
        from watchfiles import awatch
    except ImportError:
        raise ConfigError(
            f"watching files needs the package watchfiles; install it with: {INSTALL_COMMAND}"
        ) from None
    return awatch
