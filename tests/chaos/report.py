"""What a run comes to, in figures, and the table over many runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from chaos.checker import Violation
from chaos.history import History, Run


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    seed: int
    jobs: int
    runs: int
    held: int
    """Runs that began inside the transaction that fetched the job."""
    kills: int
    stops: int
    terminations: int
    restarts: int
    partitions: int
    cuts: int
    pauses: int
    duplicates: int
    """Jobs that ran to their end more than once; unexcused ones are violations besides."""
    slowest_recovery: float | None
    """Seconds from the death of a process to the next run of a job that it was running."""
    violations: int


def figures(history: History, violations: Sequence[Violation]) -> Figures:
    kinds = Counter(fault.kind for fault in history.faults)
    ends = Counter((run.job_id, run.token) for run in history.runs if run.outcome == "end")
    recoveries = _recoveries(history)
    return Figures(
        seed=history.seed,
        jobs=len(history.added),
        runs=len(history.runs),
        held=sum(run.held for run in history.runs),
        kills=kinds["kill"],
        stops=kinds["stop"],
        terminations=kinds["terminate"],
        restarts=kinds["restart"],
        partitions=kinds["partition"],
        cuts=kinds["cut"],
        pauses=len(history.pauses),
        duplicates=sum(count - 1 for count in ends.values()),
        slowest_recovery=max(recoveries, default=None),
        violations=len(violations),
    )


def _recoveries(history: History) -> list[float]:
    """For each run that a kill cut short: how long until the job was run again."""
    deaths = {worker.name: worker.ended for worker in history.workers if worker.ending == "killed"}
    starts: dict[tuple[int, str], list[Run]] = {}
    for run in sorted(history.runs, key=lambda run: run.started):
        starts.setdefault((run.job_id, run.token), []).append(run)
    found = []
    for run in history.runs:
        died = deaths.get(run.worker)
        if died is None or run.ended is not None:
            continue
        later = [each.started for each in starts[run.job_id, run.token] if each.started > died]
        if later:
            found.append(min(later) - died)
    return found


HEADINGS = (
    "seed", "jobs", "runs", "held", "kills", "stops", "terminations", "restarts", "partitions", "cuts",
    "pauses", "duplicates", "slowest recovery", "violations",
)  # fmt: skip


def table(lines: Sequence[Figures]) -> str:
    """The figures of all seeds, and their sums."""
    rows = [_cells(line) for line in lines]
    slowest = [line.slowest_recovery for line in lines if line.slowest_recovery is not None]
    sums = [str(sum(getattr(line, name) for line in lines)) for name in Figures.__struct_fields__[1:-2]]
    total = ["all", *sums, _seconds(max(slowest, default=None)), str(sum(line.violations for line in lines))]
    widths = [max(len(row[place]) for row in (HEADINGS, *rows, total)) for place in range(len(HEADINGS))]

    def line_of(cells: Sequence[str]) -> str:
        return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line_of(HEADINGS), rule, *map(line_of, rows), rule, line_of(total)])


def _cells(line: Figures) -> list[str]:
    values = msgspec.structs.asdict(line)
    values["slowest_recovery"] = _seconds(line.slowest_recovery)
    return [str(value) for value in values.values()]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"
