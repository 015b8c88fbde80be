"""Makes a picture smaller: each pixel is the average of a square of the original."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypedDict

from graphile_worker import JobHelpers, task


class Shrink(TypedDict):
    """A PPM file, and by how much to shrink it."""

    file: str
    factor: int


@task(executor="process", timeout=60, max_attempts=3)
def shrink(payload: Shrink, helpers: JobHelpers) -> None:
    """Write the small picture beside the large one."""
    path = Path(payload["file"])
    width, height, pixels = read(path)
    factor = payload["factor"]
    small = bytearray()
    for top in range(0, height - factor + 1, factor):
        helpers.raise_if_aborted()
        for left in range(0, width - factor + 1, factor):
            small += average(pixels, width, left, top, factor)
    target = path.with_suffix(".small.ppm")
    target.write_bytes(b"P6\n%d %d\n255\n" % (width // factor, height // factor) + small)
    helpers.logger.info("process %d wrote %s", os.getpid(), target.name)


def read(path: Path) -> tuple[int, int, bytes]:
    """Width, height and pixels of a PPM file."""
    kind, size, _, pixels = path.read_bytes().split(b"\n", 3)
    if kind != b"P6":
        raise ValueError(f"{path} is not a binary PPM file")
    width, height = map(int, size.split())
    return width, height, pixels


def average(pixels: bytes, width: int, left: int, top: int, size: int) -> bytes:
    """The average colour of a square."""
    sums = [0, 0, 0]
    for y in range(top, top + size):
        for x in range(left, left + size):
            start = 3 * (y * width + x)
            for colour in range(3):
                sums[colour] += pixels[start + colour]
    return bytes(value // (size * size) for value in sums)
