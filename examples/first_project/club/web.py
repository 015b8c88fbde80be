"""The web application: `uvicorn club.web:api`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from graphile_worker import WorkerUtils

from .database import Member, open_database
from .tasks import Welcome, send_welcome


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with open_database() as api.state.database:
        yield


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    """One transaction for each request, rolled back if the endpoint raises."""
    async with request.app.state.database.transaction() as session:
        yield session


# With scope="function" the commit comes before the response.
Session = Annotated[AsyncSession, Depends(open_session, scope="function")]
api = FastAPI(title="Club", lifespan=lifespan)


class NewMember(BaseModel):
    name: str
    email: str


@api.post("/members", status_code=201)
async def join(new: NewMember, session: Session) -> dict[str, int]:
    jobs = WorkerUtils.bound(session)  # adds jobs in the transaction of the session
    await jobs.add_job(send_welcome, Welcome(new.name, new.email))
    member = Member(name=new.name, email=new.email)
    session.add(member)
    try:
        await session.flush()
    except IntegrityError as error:
        raise HTTPException(409, "this address is a member already") from error
    return {"id": member.id}
