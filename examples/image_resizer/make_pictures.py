"""Draws pictures, and adds a job that shrinks each: `python make_pictures.py 8`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from graphile_worker import JobSpec, make_worker_utils

WIDTH, HEIGHT = 320, 240


def draw(path: Path, shade: int) -> None:
    """Write a picture with a gradient."""
    pixels = bytearray()
    for y in range(HEIGHT):
        for x in range(WIDTH):
            pixels += bytes((x * 255 // WIDTH, y * 255 // HEIGHT, shade))
    path.write_bytes(b"P6\n%d %d\n255\n" % (WIDTH, HEIGHT) + pixels)


def draw_all(count: int) -> list[Path]:
    """Draw pictures into the folder `pictures`."""
    folder = Path("pictures").resolve()
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.ppm" for number in range(count)]
    for number, path in enumerate(paths):
        draw(path, number * 255 // count)
    return paths


async def add_jobs(paths: list[Path]) -> None:
    """Add a job for each picture."""
    async with make_worker_utils() as utils:
        await utils.migrate()
        await utils.add_jobs([JobSpec("shrink", {"file": str(path), "factor": 4}) for path in paths])
    print(f"added {len(paths)} jobs")


if __name__ == "__main__":
    asyncio.run(add_jobs(draw_all(int(sys.argv[1]) if len(sys.argv) > 1 else 8)))
