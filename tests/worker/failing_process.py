"""Runs many jobs that fail in a way that takes memory, and prints the most that the process had, in MB.

python failing_process.py locals|messages DATABASE_URL
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
from typing import Any

from graphile_worker import run_once


def fail_with_locals(payload: Any) -> None:
    kept_by_the_frame = bytearray(200_000)
    raise ValueError(f"failed with {len(kept_by_the_frame)} bytes at hand")


def fail_with_message(payload: Any) -> None:
    raise ValueError(f"{payload['n']} " + "x" * 1_000_000)


async def with_locals(payload: Any) -> None:
    fail_with_locals(payload)


async def with_message(payload: Any) -> None:
    fail_with_message(payload)


async def main(kind: str, url: str) -> None:
    logging.getLogger("graphile_worker").setLevel(logging.CRITICAL)
    task = {"locals": with_locals, "messages": with_message}[kind]
    await run_once(connection_string=url, task_list={"fail": task}, concurrency=10, handle_signals=False)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
