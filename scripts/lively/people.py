"""Who looks at the shop's dashboard."""

from __future__ import annotations

from starlette.requests import Request

from graphile_worker.admin import Identity


def ada_may(request: Request) -> Identity:
    """For `authorize`: everything is done by ada, who may do all."""
    return Identity.with_role("ada", "admin", how="example")
