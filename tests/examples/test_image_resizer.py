"""Pictures are shrunk in processes."""

from __future__ import annotations

from typing import Any


def test_every_picture_is_shrunk(example: Any) -> None:
    printed = example.run()
    assert "added 8 jobs" in printed
    assert printed.count(".small.ppm") == 8
    small = sorted(example.folder.glob("pictures/*.small.ppm"))
    assert len(small) == 8
    assert small[0].read_bytes().startswith(b"P6\n80 60\n255\n")
