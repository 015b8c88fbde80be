"""What a run comes to, in numbers, and the table over many runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from chaos.checker import Violation, second_runs
from chaos.history import History, Run
from chaos.lost_runs import HOLD, LostRuns, kind_of


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
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


def run_counts(history: History, violations: Sequence[Violation]) -> RunCounts:
    kinds = Counter(fault.kind for fault in history.faults)
    ends = Counter((run.job_id, run.token) for run in history.runs if run.outcome == "end")
    recoveries = _recoveries(history)
    return RunCounts(
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


class HeldCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What is told besides of a run with held batches."""

    held: int
    """Runs that began inside the transaction that fetched the job."""
    outlasting: int
    """Those of them that were certainly locked when their batch ended, because they ran for long."""
    kills_in_hold: int
    """Kills of a worker that held jobs at that moment."""
    kills_after_hold: int
    """Kills of a worker that ran a job that had outlasted its batch."""
    lost_batches: dict[str, int]
    """Faults that lost the connection of a held batch, by kind."""
    settled: int
    """Runs in such batches whose outcome was written all the same, or known to be written."""
    excuses: dict[str, int]
    """Second runs by what excuses them."""

    def __str__(self) -> str:
        return (
            f"{self.held} jobs were held and {self.outlasting} of them outlasted their batch; "
            f"kills in hold: {self.kills_in_hold}, after hold: {self.kills_after_hold}; "
            f"faults that lost a held batch: {_listed(self.lost_batches)}; {self.settled} of their jobs were "
            f"settled; second runs: {_listed(self.excuses)}"
        )


def held_counts(history: History) -> HeldCounts:
    lost_runs = LostRuns(history)
    losses = [(run, loss) for run in history.runs if (loss := lost_runs.loss(run)) is not None]
    killed: dict[str, set[str]] = {"killed in hold": set(), "killed after hold": set()}
    for run, loss in losses:
        if loss.reason in killed:
            killed[loss.reason].add(run.worker)
    batches = list(_lost_batches(history))
    return HeldCounts(
        held=sum(run.held for run in history.runs),
        outlasting=sum(run.held and (run.ended or 0.0) > run.started + HOLD for run in history.runs),
        kills_in_hold=len(killed["killed in hold"]),
        kills_after_hold=len(killed["killed after hold"]),
        lost_batches=dict(Counter(reason for reason, _ in batches)),
        settled=sum(run.written is not None for _, runs in batches for run in runs),
        excuses=dict(Counter(reason or "none" for _, _, reason in second_runs(history, lost_runs.reason))),
    )


def _lost_batches(history: History) -> Iterator[tuple[str, list[Run]]]:
    """Each fault that lost the connection of a batch that was open, and the runs in it."""
    by_session: dict[int | None, list[Run]] = defaultdict(list)
    for run in history.runs:
        if run.held:
            by_session[run.session].append(run)
    for fault in history.faults:
        runs = [
            run
            for session in fault.sessions
            for run in by_session[session]
            if run.worker in fault.workers and (run.written is None or run.written >= fault.at)
        ]
        if runs:
            yield kind_of(fault), runs


def sum_of(lines: Sequence[HeldCounts]) -> HeldCounts:
    lost_batches: Counter[str] = Counter()
    excuses: Counter[str] = Counter()
    for line in lines:
        lost_batches.update(line.lost_batches)
        excuses.update(line.excuses)
    return HeldCounts(
        held=sum(line.held for line in lines),
        outlasting=sum(line.outlasting for line in lines),
        kills_in_hold=sum(line.kills_in_hold for line in lines),
        kills_after_hold=sum(line.kills_after_hold for line in lines),
        lost_batches=dict(lost_batches),
        settled=sum(line.settled for line in lines),
        excuses=dict(excuses),
    )


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


HEADINGS = (
    "seed", "jobs", "runs", "held", "kills", "stops", "terminations", "restarts", "partitions", "cuts",
    "pauses", "duplicates", "slowest recovery", "violations",
)  # fmt: skip


def table(lines: Sequence[RunCounts]) -> str:
    """The numbers of all seeds, and their sums."""
    rows = [_cells(line) for line in lines]
    slowest = [line.slowest_recovery for line in lines if line.slowest_recovery is not None]
    sums = [str(sum(getattr(line, name) for line in lines)) for name in RunCounts.__struct_fields__[1:-2]]
    total = ["all", *sums, _seconds(max(slowest, default=None)), str(sum(line.violations for line in lines))]
    widths = [max(len(row[place]) for row in (HEADINGS, *rows, total)) for place in range(len(HEADINGS))]

    def line_of(cells: Sequence[str]) -> str:
        return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line_of(HEADINGS), rule, *map(line_of, rows), rule, line_of(total)])


def _cells(line: RunCounts) -> list[str]:
    values = msgspec.structs.asdict(line)
    values["slowest_recovery"] = _seconds(line.slowest_recovery)
    return [str(value) for value in values.values()]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"
