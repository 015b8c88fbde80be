"""Follows a job to its end. Progress is on standard error: a bar on a terminal, else a line per change."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from .output import cell
from .progress import progress_bar

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...client.following import JobStatus

INTERVAL = 1.0  # seconds between looks; workers store progress as often
MAX_TEXT = 50

Show = Callable[["JobStatus"], None]


async def follow(utils: WorkerUtils, job_id: int, show: Show, *, timeout: timedelta | None = None) -> bool:
    """Call `show` until the job has ended; False if the time was over before."""
    from ...errors import JobCancelledError, JobFailedError, JobGoneError

    ended = asyncio.ensure_future(utils.wait_for(job_id))
    try:
        async with asyncio.timeout(None if timeout is None else timeout.total_seconds()) as limit:
            while not ended.done():
                show(await utils.get_job_status(job_id))
                await asyncio.wait((ended,), timeout=INTERVAL)
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    finally:
        ended.cancel()
        await asyncio.wait((ended,))
    error = ended.exception()
    if error is not None and not isinstance(error, JobFailedError | JobCancelledError | JobGoneError):
        raise error
    return True


@contextmanager
def progress_of(job_id: int, *, lines: bool) -> Iterator[Show]:
    """A function that shows how the job stands. `lines`: print lines where there is no terminal."""
    if not sys.stderr.isatty():
        yield _lines(job_id) if lines else lambda status: None
        return
    with progress_bar(f"job {job_id}", total=1.0) as bar:

        def show(status: JobStatus) -> None:
            share = status.progress.share if status.progress is not None else None
            bar.show(cell(_words(status), longest=MAX_TEXT), done=share)

        yield show


def _lines(job_id: int) -> Show:
    last = ""

    def show(status: JobStatus) -> None:
        nonlocal last
        share = status.progress.share if status.progress is not None else None
        text = _words(status) if share is None else f"{share:.0%}  {_words(status)}"
        if text != last and not status.has_ended:
            last = text
            click.echo(f"job {job_id}: {cell(text, longest=None)}", err=True)

    return show


def _words(status: JobStatus) -> str:
    """What the job does now: the note of its task, or what it is waiting for."""
    if status.state == "locked":
        note = status.progress.note if status.progress is not None else None
        return note or "running"
    if status.state == "scheduled":
        failed = f"attempt {status.attempts} failed, next " if status.attempts else "scheduled for "
        return f"{failed}{cell(status.run_at)}"
    return "waiting for a worker" if status.state == "ready" else status.state
