"""`/api/v1/failures`: error groups, and what to do about them."""

from __future__ import annotations

import re

from ..answers import not_found
from ..audit.recording import actor_of
from ..jobs import PERMISSION_FOR
from ..operations import CarefulRequest, DryRun, Operation
from ..operations.api import announce_to
from ..security.identity import Permission
from ..web.call import Call
from ..web.routes import API, Route
from . import FailureDetails, FailureList, FailuresQuery, GroupRequest, Muted, MuteRequest, queries

ON_GROUPS: tuple[Permission, ...] = ("jobs.retry", "jobs.reschedule", "jobs.cancel", "jobs.delete")
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")


async def listing(call: Call) -> FailureList:
    return await queries.list_failures(call.database, call.query(FailuresQuery), call.redactor)


async def get(call: Call) -> FailureDetails:
    return await queries.get_failure(call.database, fingerprint_of(call), call.redactor)


async def retry(call: Call) -> Operation | DryRun:
    request = await call.json(CarefulRequest)
    fingerprint, environment = fingerprint_of(call), call.app.environment
    if request.dry_run:
        return await queries.dry_run(call.database, fingerprint, "retry", request.rate, environment)
    announce_to(call)
    return await queries.retry_carefully(call.database, actor_of(call), fingerprint, request, environment)


async def act(call: Call) -> Operation | DryRun:
    request = await call.json(GroupRequest)
    call.require(PERMISSION_FOR[request.action])
    announce_to(call)
    if request.dry_run:
        return await queries.dry_run(
            call.database, fingerprint_of(call), request.action, request.rate, call.app.environment
        )
    return await queries.change_group(
        call.database, actor_of(call), fingerprint_of(call), request.action, request,
        rate=request.rate, confirm=request.confirm, environment=call.app.environment,
    )  # fmt: skip


async def mute(call: Call) -> Muted:
    request = await call.json(MuteRequest)
    return await queries.mute(call.database, actor_of(call), fingerprint_of(call), request.reason)


async def unmute(call: Call) -> Muted:
    return await queries.unmute(call.database, actor_of(call), fingerprint_of(call))


def fingerprint_of(call: Call) -> str:
    """The fingerprint in the path."""
    text = str(call.path_values["fingerprint"])
    if not _FINGERPRINT.fullmatch(text):
        raise not_found("such error group")
    return text


GROUP = f"{API}/failures/{{fingerprint}}"
ROUTES = [
    Route(
        method="GET", path=f"{API}/failures", handler=listing, permission="jobs.read", query=FailuresQuery,
        answer=FailureList, summary="Error groups, the one that occurred last first",
    ),
    Route(
        method="GET", path=GROUP, handler=get, permission="jobs.read", answer=FailureDetails,
        summary="An error group: the latest error, what its jobs share, and the jobs",
    ),
    Route(
        method="POST", path=f"{GROUP}/retry", handler=retry, permission="jobs.retry", body=CarefulRequest,
        answer=Operation | DryRun,
        summary="Retry the jobs of a group carefully: some first, then the others until one fails",
    ),
    Route(
        method="POST", path=f"{GROUP}/actions", handler=act, permission=ON_GROUPS, body=GroupRequest,
        answer=Operation | DryRun, summary="Retry, reschedule, give up or delete all jobs of a group",
    ),
    Route(
        method="POST", path=f"{GROUP}/mute", handler=mute, permission="jobs.retry", body=MuteRequest,
        answer=Muted, summary="Hide a group until it occurs in a newer version",
    ),
    Route(
        method="POST", path=f"{GROUP}/unmute", handler=unmute, permission="jobs.retry", answer=Muted,
        summary="Show a group again",
    ),
]  # fmt: skip
