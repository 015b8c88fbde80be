"""A worker that starts at most five `sms` jobs per second, and all others without a limit."""

from __future__ import annotations

import asyncio
import time

from rate_limit import RateLimit, RateLimits

from graphile_worker import run, task


@task
async def send_sms(payload: dict[str, int]) -> None:
    print(f"{time.monotonic():.3f} sms {payload['number']}", flush=True)


@task
async def send_email(payload: dict[str, int]) -> None:
    print(f"{time.monotonic():.3f} email {payload['number']}", flush=True)


async def main() -> None:
    limits = RateLimits([RateLimit("sms", rate=5)])
    async with run(
        task_list=[send_sms, send_email],
        concurrency=4,
        plugins=[limits],
        forbidden_flags=limits.forbidden,
        poll_interval=0.1,  # how soon the worker notices that a job may run again
    ) as runner:
        await runner.wait()


if __name__ == "__main__":
    asyncio.run(main())
