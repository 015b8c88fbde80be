"""Welcomes members."""

from __future__ import annotations

from dataclasses import dataclass

from graphile_worker import task

from .mailer import Mailer


@dataclass
class Welcome:
    name: str
    email: str


@task(max_attempts=10)
async def send_welcome(payload: Welcome, *, mailer: Mailer) -> None:
    await mailer.send(payload.email, f"Welcome, {payload.name}!")
