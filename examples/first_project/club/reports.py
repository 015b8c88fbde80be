"""Reports to the owner of the club, once a week."""

from __future__ import annotations

from sqlalchemy import func, select

from graphile_worker import task

from .database import Database, Member
from .mailer import Mailer

OWNER = "owner@club.example"


@task
async def weekly_report(*, database: Database, mailer: Mailer) -> None:
    async with database.transaction() as session:
        members = await session.scalar(select(func.count()).select_from(Member))
    await mailer.send(OWNER, f"Members of the club: {members}")
