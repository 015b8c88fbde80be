"""OpenTelemetry: spans for adding and running jobs, one trace from the request to the job, and metrics.

    async with make_worker_utils(plugins=[OpenTelemetryPlugin()]) as utils: ...
    await run(plugins=[OpenTelemetryPlugin()], ...)

Providers, samplers and exporters are those of your program; only the API is needed here.
"""

from __future__ import annotations

try:
    import opentelemetry.trace  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "graphile_worker.contrib.opentelemetry needs OpenTelemetry: pip install 'graphile-worker[otel]'"
    ) from error

from .carried import context_as_text, context_from_text, context_of, inject
from .plugin import OpenTelemetryPlugin, Relation

__all__ = ["OpenTelemetryPlugin", "Relation", "context_as_text", "context_from_text", "context_of", "inject"]
