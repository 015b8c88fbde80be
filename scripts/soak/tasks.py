"""Tasks of the soak that run on the event loop: short, slow, failing, batched, and one that adds jobs itself.

With SOAK_LEAK in the environment, `quick` keeps so many bytes of each job for ever: the result must see it.
"""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any, TypedDict

from graphile_worker import JobHelpers, task

LEAK = int(os.environ.get("SOAK_LEAK", "0"))
_kept: list[bytes] = []
_chance = Random()  # noqa: S311 - nothing secret


class Mail(TypedDict):
    """A payload with a type, so that decoding is part of the load."""

    to: str
    number: int


@task
async def quick(payload: Mail) -> None:
    """Ends at once."""
    if LEAK:
        _kept.append(os.urandom(LEAK))


@task
async def slow(payload: Any) -> None:
    """Waits for something, as most tasks do."""
    await asyncio.sleep(_chance.uniform(0.005, 0.05))


@task
async def flaky(payload: Any, helpers: JobHelpers) -> None:
    """Fails at its first try, and some of them at every try."""
    if payload["hopeless"] or helpers.job.attempts == 1:
        raise RuntimeError(f"attempt {helpers.job.attempts} of {payload!r} fails on purpose")


@task
async def gathered(payload: list[Any]) -> list[Exception | None]:
    """A batch job of which some items fail."""
    return [ValueError(f"{item!r}") if _chance.random() < 0.05 else None for item in payload]


@task
async def follow(payload: Any, helpers: JobHelpers) -> None:
    """Asks the database and adds another job from within."""
    await helpers.query("select 1")
    await helpers.add_job("quick", {"to": "someone@example.com", "number": helpers.job.id})
    helpers.logger.debug("queue %s", await helpers.get_queue_name())


@task
async def tick(payload: Any) -> None:
    """Added by the crontab."""
