"""`/api/v1/operations`: changes to all jobs that match a filter."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..answers import Listing
from ..audit.recording import actor_of
from ..jobs import PERMISSION_FOR
from ..jobs.api import job_filter_of, redactor_of
from ..jobs.filters import Filter
from ..web.call import Call
from ..web.routes import API, Route
from . import Chosen, DryRun, Operation, OperationRequest, queries
from .undo import permission_to_stop

ANY_ACTION = tuple(dict.fromkeys(PERMISSION_FOR.values()))


class OperationsQuery(msgspec.Struct, frozen=True):
    """One page of the operations, the latest first."""

    after: int | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50


def announce_to(call: Call) -> None:
    """Let live pages know of progress."""
    hub = call.hub
    call.database.operations.on_change = lambda operation_id: hub.publish(
        f"operation:{operation_id}", "operations"
    )


async def start(call: Call) -> Operation | DryRun:
    request = await call.json(OperationRequest)
    call.require(PERMISSION_FOR[request.action])
    chosen = chosen_of(call, request)
    if request.dry_run:
        return await queries.dry_run(call.database, request, chosen, call.app.environment)
    announce_to(call)
    return await queries.start(call.database, actor_of(call), request, chosen, call.app.environment)


def chosen_of(call: Call, request: OperationRequest) -> Chosen:
    """The jobs that a request names; refused if the person may not search what it searches."""
    job_filter_of(call, Filter.parse(request.filter))
    return queries.chosen_by(
        request, redactor_of(call), hides_secrets=not call.may("payload.read"),
        may_delete=call.may("jobs.delete"),
    )  # fmt: skip


async def listing(call: Call) -> Listing[Operation]:
    query = call.query(OperationsQuery)
    found = await queries.latest(call.database, before=query.after, limit=query.limit + 1)
    if found is None:
        return Listing([])
    items = found[: query.limit]
    return Listing(items, next=str(items[-1].id) if len(found) > query.limit else None)


async def get(call: Call) -> Operation:
    announce_to(call)
    return await queries.get(call.database, id_of(call))


async def stop(call: Call) -> Operation:
    found = await queries.get(call.database, id_of(call))
    call.require(await permission_to_stop(call.database, found))
    announce_to(call)
    return await queries.stop(call.database, actor_of(call), found.id)


def id_of(call: Call) -> int:
    """The id in the path."""
    return int(call.path_values["id"])


ROUTES = [
    Route(
        method="POST", path=f"{API}/operations", handler=start, permission=ANY_ACTION, body=OperationRequest,
        answer=Operation | DryRun,
        summary="Change all jobs that match a filter, in steps; or only say what would happen",
    ),
    Route(
        method="GET", path=f"{API}/operations", handler=listing, permission="jobs.read",
        query=OperationsQuery, answer=Listing[Operation], summary="Changes to many jobs, the latest first",
    ),
    Route(
        method="GET", path=f"{API}/operations/{{id:int}}", handler=get, permission="jobs.read",
        answer=Operation, summary="How far an operation is",
    ),
    Route(
        method="POST", path=f"{API}/operations/{{id:int}}/stop", handler=stop, permission=ANY_ACTION,
        answer=Operation, summary="Stop an operation after the current step",
    ),
]  # fmt: skip
