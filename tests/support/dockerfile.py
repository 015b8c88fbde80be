"""Reads a Dockerfile."""

from __future__ import annotations

import re


def read_instructions(text: str) -> list[tuple[str, str]]:
    """Keyword and arguments of each instruction, with continued lines joined and comments removed."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in joined.splitlines()]
