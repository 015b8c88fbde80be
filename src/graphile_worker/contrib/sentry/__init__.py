"""Sentry: errors of jobs, traces from the request that added a job to its run, monitors of recurring jobs."""

try:
    import sentry_sdk as sentry_sdk
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "graphile_worker.contrib.sentry needs the Sentry SDK: pip install 'graphile-worker[sentry]'"
    ) from error

from .plugin import SentryPlugin

__all__ = ["SentryPlugin"]
