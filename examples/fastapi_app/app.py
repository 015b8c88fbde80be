"""A web application: signing up stores a user and adds a job, in one transaction."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel
from tasks.send_welcome import Welcome, send_welcome

from graphile_worker import make_worker_utils

USERS = """
create table if not exists users (
    id bigserial primary key,
    email text not null unique,
    welcomed_at timestamptz
)
"""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """One pool for the application and for adding jobs."""
    async with (
        asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=5) as pool,
        make_worker_utils(pg_pool=pool) as utils,
    ):
        await utils.migrate()
        await pool.execute(USERS)
        yield {"pool": pool, "utils": utils}


app = FastAPI(lifespan=lifespan)


class SignUp(BaseModel):
    email: str


@app.post("/users", status_code=201)
async def sign_up(sign_up: SignUp, request: Request) -> dict[str, Any]:
    """The job is committed with the user, so the task always finds the user."""
    async with request.state.pool.acquire() as connection:
        try:
            async with connection.transaction():
                user_id = await connection.fetchval(
                    "insert into users (email) values ($1) returning id", sign_up.email
                )
                await request.state.utils.add_job(
                    send_welcome,
                    Welcome(user_id=user_id),
                    job_key=f"welcome:{user_id}",
                    connection=connection,
                )
        except asyncpg.UniqueViolationError:
            raise HTTPException(409, "this address has signed up already") from None
    return {"id": user_id}


@app.get("/users/{user_id}")
async def user(user_id: int, request: Request) -> dict[str, Any]:
    row = await request.state.pool.fetchrow("select * from users where id = $1", user_id)
    if row is None:
        raise HTTPException(404)
    return dict(row)
