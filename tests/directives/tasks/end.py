"""Tasks that end as their payload says; each run is noted in a table of the test's own."""

from __future__ import annotations

from typing import Any

from graphile_worker import GiveUp, JobHelpers, Retry, RetryIn, Snooze, task

LATER = 6000.0  # seconds, so that nothing comes due in a test
NOTE = "insert into ran (job_id, shape) values ($1, $2)"


def directive(how: str) -> Exception | None:
    directives: dict[str, Exception] = {
        "snooze": Snooze(LATER),
        "retry_in": RetryIn(LATER, "busy"),
        "give_up": GiveUp("no way"),
        "fail": ValueError("broken"),
        "fail_last": ValueError("broken"),
    }
    return directives.get(how)


def item(how: str) -> object:
    """What a batch task returns for an item."""
    chosen = directive(how)
    return failing(chosen) if isinstance(chosen, ValueError) else chosen


async def failing(error: Exception) -> None:
    raise error


@task(on_failure="alert", retry=Retry.fixed(LATER))
async def end(payload: dict[str, Any], helpers: JobHelpers) -> object:
    job = helpers.job
    if payload.get("replace"):
        await helpers.add_job("nothing_runs_this", {}, job_key=job.key)
    await helpers.query(NOTE, job.id, "async")
    chosen = directive(payload["how"])
    if chosen is None or payload.get("return"):
        return chosen
    raise chosen


@task(on_failure="alert", retry=Retry.fixed(LATER))
def end_in_thread(payload: dict[str, Any], helpers: JobHelpers) -> None:
    helpers.sync.query(NOTE, helpers.job.id, "thread")
    if (chosen := directive(payload["how"])) is not None:
        raise chosen


@task(on_failure="alert", retry=Retry.fixed(LATER))
async def end_batch(payload: list[str], helpers: JobHelpers) -> list[object]:
    await helpers.query(NOTE, helpers.job.id, "batch")
    return [item(how) for how in payload]
