"""A job as something to paste elsewhere: curl, a command, SQL, a test. Pure."""

from __future__ import annotations

import json
import re
import shlex

from ..models.job import JobView

LONGEST = 20_000
"""Characters of a payload in such a text."""


def copies_of(job: JobView, payload: str, address: str, schema: str) -> list[tuple[str, str]]:
    """Labels and texts; with the payload as the page shows it, redacted."""
    if len(payload) > LONGEST or job.task is None:
        return [("curl", _curl(job, address))]
    return [
        ("curl", _curl(job, address)),
        ("Command", _command(job, payload)),
        ("SQL", _sql(job, payload, schema)),
        ("pytest", _test(job, payload)),
    ]


def _curl(job: JobView, address: str) -> str:
    return f'curl -H "Authorization: Bearer $TOKEN" {shlex.quote(f"{address}/api/v1/jobs/{job.id}")}'


def _command(job: JobView, payload: str) -> str:
    parts = ["graphile-worker", "add", job.task or "", payload]
    if job.queue is not None:
        parts += ["--queue", job.queue]
    if job.priority:
        parts += ["--priority", str(job.priority)]
    return " ".join(shlex.quote(part) for part in parts)


def _sql(job: JobView, payload: str, schema: str) -> str:
    values = [_literal(job.task or ""), f"{_literal(payload)}::json"]
    if job.queue is not None:
        values.append(f"queue_name => {_literal(job.queue)}")
    if job.priority:
        values.append(f"priority => {job.priority}")
    is_plain = re.fullmatch(r"[a-z_][a-z0-9_]*", schema) is not None
    quoted = schema if is_plain else '"' + schema.replace('"', '""') + '"'
    return f"select {quoted}.add_job({', '.join(values)});"


def _literal(text: str) -> str:
    if "\\" in text:
        return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    return "'" + text.replace("'", "''") + "'"


def _test(job: JobView, payload: str) -> str:
    """A test with the fixtures of the pytest plugin."""
    task = job.task or "task"
    name = re.sub(r"\W+", "_", task).strip("_").lower() or "task"
    return (
        "import json\n\n\n"
        f"async def test_{name}_with_the_payload_of_job_{job.id}(graphile_worker_utils, run_jobs):\n"
        f"    payload = json.loads({_python(payload)})\n"
        f"    await graphile_worker_utils.add_job({json.dumps(task)}, payload)\n"
        "    (await run_jobs()).check()\n"
    )


def _python(text: str) -> str:
    return "r" + repr(text) if "\\" in text and "'" not in text and not text.endswith("\\") else repr(text)
