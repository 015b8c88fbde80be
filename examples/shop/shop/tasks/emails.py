"""send_email: application state, and an idempotency key."""

from __future__ import annotations

from graphile_worker import JobHelpers, task

from ..mailer import Email, Mailer


@task(max_attempts=10)
async def send_email(payload: Email, helpers: JobHelpers) -> None:
    # A job may run twice, for example if its worker is killed. Its id stays the same, so one e-mail is sent.
    await helpers.extension(Mailer).send(payload, key=f"job-{helpers.job.id}")
