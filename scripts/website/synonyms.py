"""A hook of mkdocs: words that people search for, and the page with the answer, which has other words.

The search of the site ranks them above titles, so a word belongs to the one page that answers best.
"""

from __future__ import annotations

from typing import Any

SYNONYMS: dict[str, tuple[str, ...]] = {
    "adding-jobs.md": ("enqueue", "delay", "eta", "countdown", "transactional", "trigger"),
    "administration.md": ("dead letter queue", "DLQ", "redrive", "requeue", "permissions"),
    "admin/index.md": ("web UI", "Flower", "rq-dashboard", "browser"),
    "admin/users.md": ("login", "authentication", "SSO", "OAuth"),
    "application.md": ("dependency injection", "startup", "singleton"),
    "batch-jobs.md": ("bulk",),
    "cancelling.md": ("revoke", "abort", "kill job"),
    "configuration.md": ("environment variables", "settings file"),
    "doctor.md": ("healthcheck", "diagnose"),
    "errors-and-retries.md": ("retry", "backoff", "jitter", "middleware"),
    "heavy-work.md": ("CPU", "GPU", "multiprocessing", "prefork", "Ray", "Dask"),
    "history-and-results.md": ("result backend", "return value"),
    "how-many-at-once.md": ("parallelism",),
    "integrations/blocking.md": ("sync", "synchronous", "psycopg2"),
    "job-keys.md": ("debounce", "upsert"),
    "limits.md": ("rate limit", "throttle", "throttling", "semaphore"),
    "logging.md": ("log level", "verbosity"),
    "observability/kubernetes.md": ("k8s", "liveness", "readiness", "KEDA", "autoscaling", "Helm"),
    "observability/prometheus.md": ("Grafana", "alerts"),
    "observability/opentelemetry.md": ("tracing", "Jaeger", "OTLP"),
    "observability/systemd.md": ("supervisor", "daemon", "service unit"),
    "patterns.md": (
        "workflow", "chain", "chord", "group", "canvas", "fan-out", "fan-in", "saga", "outbox", "webhook",
    ),
    "performance.md": ("throughput", "autovacuum", "bloat"),
    "queues.md": ("FIFO", "mutex", "serialize", "ordering"),
    "recurring-jobs.md": (
        "timezone", "time zone", "daylight saving", "DST", "cron", "beat", "periodic", "schedule",
    ),
    "reliability.md": ("PgBouncer", "at-least-once", "exactly-once", "idempotent", "dead worker", "crash"),
    "shutdown-and-deploys.md": ("zero downtime", "SIGTERM", "rolling update", "graceful"),
    "start-here.md": ("Docker", "Dockerfile", "docker compose", "container", "project structure"),
    "testing.md": ("pytest", "mock", "eager mode", "fixtures"),
    "time-limits.md": ("timeout", "deadline", "soft limit"),
    "troubleshooting.md": ("stuck", "hangs", "not running", "memory leak", "duplicate runs"),
    "unique-jobs.md": ("deduplicate", "deduplication", "idempotency key"),
}  # fmt: skip


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of a page; its `tags` are read by the plugin `search`."""
    if words := SYNONYMS.get(page.file.src_uri):
        page.meta["tags"] = [*page.meta.get("tags", ()), *words]
    return markdown
