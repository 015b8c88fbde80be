"""The task `send_welcome`: greets a new user once."""

from __future__ import annotations

from dataclasses import dataclass

from graphile_worker import JobHelpers, task


@dataclass
class Welcome:
    user_id: int


@task(max_attempts=10)
async def send_welcome(payload: Welcome, helpers: JobHelpers) -> None:
    rows = await helpers.query("select email, welcomed_at from users where id = $1", payload.user_id)
    if not rows or rows[0]["welcomed_at"] is not None:
        return  # the user is gone, or an earlier attempt got this far
    helpers.logger.info("Welcome, %s!", rows[0]["email"])  # send an e-mail here
    await helpers.query("update users set welcomed_at = now() where id = $1", payload.user_id)
