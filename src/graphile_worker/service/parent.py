"""What a parent process tells the worker that it started, through the environment."""

from __future__ import annotations

PARENT_PIPE = "_GRAPHILE_WORKER_PARENT_PIPE"
"""Environment variable with the descriptor of a pipe that is closed when the parent process dies."""
FEED_PIPE = "_GRAPHILE_WORKER_FEED_PIPE"
"""Environment variable with the descriptor of a pipe to which the worker reports its activity."""
