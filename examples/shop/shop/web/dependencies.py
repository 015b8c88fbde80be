"""What endpoints share: the state of the process, and one transaction for each request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, TypeVar

from fastapi import Depends, HTTPException, Request
from sqlalchemy.ext.asyncio import AsyncSession

from ..bank import Bank
from ..models import Base
from ..state import State

Row = TypeVar("Row", bound=Base)


def get_state(request: Request) -> State:
    state: State = request.app.state.shop
    return state


def get_bank(state: Annotated[State, Depends(get_state)]) -> Bank:
    return state.bank


async def open_session(state: Annotated[State, Depends(get_state)]) -> AsyncIterator[AsyncSession]:
    """A session whose transaction is rolled back if the endpoint raises, with the jobs that it added."""
    async with state.database.transaction() as session:
        yield session


# With scope="function" the commit comes before the response: a client never gets a 201 for a failed commit.
Session = Annotated[AsyncSession, Depends(open_session, scope="function")]
TheBank = Annotated[Bank, Depends(get_bank)]


async def find(session: AsyncSession, model: type[Row], key: int | str) -> Row:
    """The row with this primary key, or a response with status 404."""
    row = await session.get(model, key)
    if row is None:
        raise HTTPException(404, f"there is no {model.__name__.lower()} {key}")
    return row
