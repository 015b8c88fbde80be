"""The parent that started this process as its worker: `--watch`, `dev`, or `serve(watch=True)`."""

from __future__ import annotations

import os

PARENT_PIPE = "_GRAPHILE_WORKER_PARENT_PIPE"
"""Environment variable with the descriptor of a pipe that is closed when the parent process dies."""
FEED_PIPE = "_GRAPHILE_WORKER_FEED_PIPE"
"""Environment variable with the descriptor of a pipe to which the worker reports its activity."""


class ParentProcess:
    """What the parent said in the environment; false if there is no such parent."""

    def __init__(self) -> None:
        # Removed from the environment, so that a command which a task starts has no such parent.
        self._pipe = os.environ.pop(PARENT_PIPE, None)
        feed = os.environ.pop(FEED_PIPE, None)
        self.feed = int(feed) if feed is not None else None
        """The descriptor for reports of activity, if the parent wants them."""
        self._process = os.getpid()

    def __bool__(self) -> bool:
        return self._pipe is not None

    def attach(self) -> None:
        """Stop when the parent dies."""
        if self._pipe is not None:
            from .signals import stop_when_parent_dies

            stop_when_parent_dies(int(self._pipe), pid=self._process)
