"""`/api/v1/jobs/actions`: actions on jobs that are named by id."""

from __future__ import annotations

from ..audit.recording import actor_of
from ..web.call import Call
from ..web.routes import API, Route
from . import PERMISSION_FOR, ActionAnswer, ActionRequest, changing

MOST_ANNOUNCED = 20


async def act(call: Call) -> ActionAnswer:
    request = await call.json(ActionRequest)
    call.require(PERMISSION_FOR[request.action])
    found = await changing.act(call.database, actor_of(call), request, may_delete=call.may("jobs.delete"))
    return announced(call, found)


def announced(call: Call, answer: ActionAnswer) -> ActionAnswer:
    """Tell live pages what has changed."""
    jobs = [f"job:{job_id}" for job_id in answer.changed[:MOST_ANNOUNCED]]
    if answer.changed:
        call.hub.publish("jobs", "failures", "audit", *jobs)
    return answer


ROUTES = [
    Route(
        method="POST", path=f"{API}/jobs/actions", handler=act,
        permission=tuple(dict.fromkeys(PERMISSION_FOR.values())), body=ActionRequest, answer=ActionAnswer,
        summary="Run now, retry, reschedule, give up, delete, cancel or add again up to 200 jobs",
    ),
]  # fmt: skip
