"""Checks of limits: whether jobs run that no limit counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..text import count
from .facts import JobsOutsideLimit
from .finding import Finding, well


def check_limits(found: Sequence[JobsOutsideLimit]) -> Iterator[Finding]:
    """Limited tasks that pools of Node or Rust run; nothing if there are no limits."""
    outside = [row for row in found if row.jobs]
    for row in outside:
        yield Finding(
            "limits", "warning",
            f"{row.locked_by} runs {count(row.jobs, 'job')} of {row.task_identifier} and does not keep the "
            f"limit {row.limit_name!r}",
            "Only Python workers that register with the database keep limits. More jobs may run at once, and "
            "more may start, than the limit says.",
            f"Register the task {row.task_identifier} in Python workers only, with recovery turned on.",
        )  # fmt: skip
    names = {row.limit_name for row in found}
    if names and not outside:
        yield well("limits", f"{count(len(names), 'limit')}; no worker ignores one")
