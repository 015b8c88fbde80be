"""A hook of mkdocs: words that people search for, and the page with the answer, which has other words.

The search of the site ranks them above titles, so a word belongs to the one page that answers best, and words
of the glossary must not be among them. Pages for maintainers come after those for users.
"""

from __future__ import annotations

from typing import Any

MAINTAINERS = "design/"
SYNONYMS: dict[str, tuple[str, ...]] = {
    "adding-jobs.md": (
        "enqueue", "delay", "eta", "countdown", "transactional", "trigger", "later", "priority", "priorities",
    ),
    "administration.md": ("dead letter", "DLQ", "redrive", "requeue", "permissions", "migrations"),
    "admin/index.md": ("web UI", "Flower", "rq-dashboard", "browser"),
    "admin/users.md": ("login", "authentication", "SSO", "OAuth"),
    "application.md": ("dependency injection", "startup", "singleton"),
    "batch-jobs.md": ("bulk",),
    "cancelling.md": ("revoke", "abort", "kill", "delete"),
    "configuration.md": ("environment variables", "settings", "connections"),
    "doctor.md": ("healthcheck", "diagnose"),
    "errors-and-retries.md": ("retry", "failed", "backoff", "jitter", "middleware", "give up"),
    "getting-started.md": ("install", "pip", "quickstart", "background"),
    "heavy-work.md": ("CPU", "GPU", "multiprocessing", "process pool", "prefork", "Ray", "Dask"),
    "history-and-results.md": ("result backend", "return value", "PII", "GDPR", "wait", "finish"),
    "how-many-at-once.md": ("parallelism", "concurrency"),
    "integrations/blocking.md": ("sync", "synchronous", "psycopg2"),
    "job-keys.md": ("debounce", "upsert"),
    "limits.md": ("rate limit", "throttle", "throttling", "semaphore"),
    "logging.md": ("log", "verbosity"),
    "observability/kubernetes.md": ("k8s", "liveness", "readiness", "KEDA", "autoscaling", "Helm"),
    "observability/prometheus.md": ("Grafana", "alerts"),
    "observability/opentelemetry.md": ("tracing", "Jaeger", "OTLP"),
    "observability/systemd.md": ("supervisor", "daemon"),
    "patterns.md": (
        "workflow", "chain", "chord", "canvas", "fan-out", "fan-in", "saga", "outbox", "webhook",
    ),
    "performance.md": ("throughput", "autovacuum", "bloat"),
    "queues.md": ("one at a time", "FIFO", "mutex", "serialize", "ordering"),
    "recurring-jobs.md": (
        "timezone", "daylight saving", "DST", "cron", "beat", "periodic", "schedule",
    ),
    "reliability.md": (
        "lost", "PgBouncer", "at-least-once", "exactly-once", "idempotent", "declared dead", "crash",
    ),
    "shutdown-and-deploys.md": ("zero downtime", "SIGTERM", "rolling", "graceful"),
    "start-here.md": ("Docker", "Dockerfile", "docker compose", "container", "project structure"),
    "testing.md": ("pytest", "mock", "eager mode", "fixtures"),
    "time-limits.md": ("timeout",),
    "troubleshooting.md": ("stuck", "hangs", "running", "memory leak", "duplicate"),
    "tasks.md": ("async", "coroutine"),
    "unique-jobs.md": ("deduplicate", "deduplication", "idempotency"),
}  # fmt: skip


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of a page; its `tags` are read by the plugin `search`."""
    if words := SYNONYMS.get(page.file.src_uri):
        page.meta["tags"] = [*page.meta.get("tags", ()), *words]
    if page.file.src_uri.startswith(MAINTAINERS):
        page.meta["search"] = {"boost": 0.1}
    return markdown
