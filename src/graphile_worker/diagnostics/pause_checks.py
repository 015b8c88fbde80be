"""What is paused: why jobs wait."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from ..pauses import Pause
from .finding import Finding, some, well

LATE = timedelta(minutes=1)
"""Workers end the pause of a queue within seconds."""


def check_pauses(pauses: Sequence[Pause]) -> Iterator[Finding]:
    """Pauses, and pauses of queues whose time is over."""
    if not pauses:
        yield well("pauses", "nothing is paused")
        return
    now = datetime.now(UTC)
    over = [pause for pause in pauses if pause.until is not None and pause.until < now - LATE]
    if over:
        names = [pause.queue_name or "" for pause in over]
        flags = " ".join(f"--queue {shlex.quote(name)}" for name in names[:5])
        yield Finding(
            "pauses", "warning", f"queues are still paused although their time is over: {some(names)}",
            "A Python worker resumes a queue when its time has come, and none has done it.",
            f"graphile-worker resume {flags}, or start a Python worker.",
        )  # fmt: skip
    others = [pause for pause in pauses if pause not in over]
    if others:
        yield Finding(
            "pauses", "info", f"paused: {some([pause.what + pause.terms for pause in others])}",
            "Their jobs wait, and running ones go on. Node and Rust workers obey pauses of queues only.",
            "To resume them: `graphile-worker resume`, with `--queue NAME`, `--task TASK` or `--all`.",
        )  # fmt: skip
