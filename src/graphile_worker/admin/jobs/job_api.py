"""`/api/v1/jobs/{id}`: one job, its attempts, the explanation of its state; adding and editing jobs."""

from __future__ import annotations

import msgspec

from ...diagnostics.explanation.values import Explanation
from ...errors import StackUnavailableError
from ..answers import Download, Problem
from ..audit import recording
from ..audit.recording import actor_of
from ..database import REQUESTS
from ..web.call import Call
from ..web.routes import API, Route
from . import Attempt, JobEdit, JobToAdd, JobView, NewJob, Revealed, adding, job
from .api import redactor_of


class Attempts(msgspec.Struct, frozen=True):
    """Failed attempts, the latest first."""

    items: list[Attempt]


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running job is: the calls it is in, the outermost first."""

    id: int
    worker: str
    kind: str
    """`coroutine` waits at the last line, `thread` runs it."""
    stack: str
    running_for: float | None
    place: str | None = None
    """Where an executor runs the job, such as `process 4711`; null for the worker itself."""


def job_id_of(call: Call) -> int:
    return int(call.path_values["id"])


async def get_job(call: Call) -> JobView:
    return await job.get_view(call.database, redactor_of(call), job_id_of(call))


async def list_attempts(call: Call) -> Attempts:
    return Attempts((await get_job(call)).failed_attempts)


async def get_explanation(call: Call) -> Explanation:
    return await job.explanation_of(call.database, (await get_job(call)).id)


async def get_stack(call: Call) -> Stack:
    """Ask the worker; it answers within seconds, or says nothing."""
    await call.database.open()
    try:
        found = await call.database.utils.jobs.get_stack(job_id_of(call))
    except StackUnavailableError as error:
        raise Problem(409, "The stack cannot be had", str(error)) from None
    return Stack(
        id=found.job_id, worker=found.worker_id, kind=found.kind, running_for=found.running_for,
        stack=redactor_of(call).text(found.stack), place=found.place,
    )  # fmt: skip


async def reveal(call: Call) -> Revealed:
    """The payload as it is; recorded."""
    job_id = job_id_of(call)
    raw, task = await job.payload_of(call.database, job_id)
    await recording.record_alone(
        call.database, actor_of(call), "reveal_payload", target=f"job {job_id}, {task}",
        details={"job": job_id},
    )  # fmt: skip
    return job.revealed(job_id, raw)


async def download(call: Call) -> Download:
    """The payload as a file, redacted."""
    job_id = job_id_of(call)
    raw, task = await job.payload_of(call.database, job_id)
    content = redactor_of(call).payload(raw, task).encode("utf-8", "replace")
    return Download(content, f"job-{job_id}.json", "application/json")


async def add_job(call: Call) -> JobView:
    new: JobToAdd = await call.json(NewJob)
    added = await adding.add_job(call.database, actor_of(call), new, adding.options_in(new))
    return await job.get_view(call.database, redactor_of(call), added.id)


async def edit_job(call: Call) -> JobView:
    edit = await call.json(JobEdit)
    await adding.edit_payload(call.database, actor_of(call), job_id_of(call), edit)
    return await get_job(call)


ONE = f"{API}/jobs/{{id:int}}"
ROUTES = [
    Route(
        method="POST", path=f"{API}/jobs", handler=add_job, permission="jobs.add", body=NewJob,
        answer=JobView, status=201, summary="Add a job",
    ),
    Route(
        method="GET", path=ONE, handler=get_job, permission="jobs.read", answer=JobView,
        summary="A job, or what is known of one that is gone",
    ),
    Route(
        method="PATCH", path=ONE, handler=edit_job, permission="jobs.edit", body=JobEdit, answer=JobView,
        summary="Replace the payload of a job that waits and has this revision",
    ),
    Route(
        method="GET", path=f"{ONE}/attempts", handler=list_attempts, permission="jobs.read",
        answer=Attempts, summary="Failed attempts of a job",
    ),
    Route(
        method="GET", path=f"{ONE}/explanation", handler=get_explanation, permission="jobs.read",
        answer=Explanation, summary="Why a job does not run",
    ),
    Route(
        method="POST", path=f"{ONE}/stack", needs=REQUESTS,
        handler=get_stack, permission="jobs.read", answer=Stack,
        summary="Where a running job is now: its worker is asked",
    ),
    Route(
        method="POST", path=f"{ONE}/reveal", handler=reveal, permission="payload.read", answer=Revealed,
        summary="The payload of a job without redaction; recorded in the audit", changes_nothing=True,
    ),
    Route(
        method="GET", path=f"{ONE}/payload", handler=download, permission="jobs.read", answer=msgspec.Raw,
        summary="The payload of a job as a file, redacted",
    ),
]  # fmt: skip
