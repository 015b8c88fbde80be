"""Health checks and metrics over HTTP, from the worker's own event loop. Needs no further package.

The command `graphile-worker --http-port` and `serve(http_port=…)` do the same for a whole process.
"""

from __future__ import annotations

from ..runner.process.probes import HttpPlugin

__all__ = ["HttpPlugin"]
