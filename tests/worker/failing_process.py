"""Runs many jobs whose failures take memory, and prints the peak memory of the process in MB.

python failing_process.py locals|messages DATABASE_URL
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
from pathlib import Path
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
    print(peak_memory())


def peak_memory() -> int:
    """In MB; ru_maxrss would count the parent process too."""
    status = Path("/proc/self/status")
    if not status.exists():  # not on Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 2**20
    (peak,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(peak) // 1024


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
