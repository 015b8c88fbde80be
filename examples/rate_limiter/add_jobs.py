"""Adds ten messages of each kind; those with a limited rate have the flag `sms`."""

from __future__ import annotations

import asyncio

from graphile_worker import JobSpec, make_worker_utils


async def main() -> None:
    async with make_worker_utils() as utils:
        await utils.migrate()
        numbers = range(1, 11)
        await utils.add_jobs([JobSpec("send_sms", {"number": n}, flags=["sms"]) for n in numbers])
        await utils.add_jobs([JobSpec("send_email", {"number": n}) for n in numbers])


if __name__ == "__main__":
    asyncio.run(main())
