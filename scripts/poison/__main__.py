"""`python -m scripts.poison`: jobs that kill their worker, with the default settings.

Real workers, restarted at once when they end, on an embedded server. Each case has a database of its own. It
ends when the poison has failed permanently and all other jobs have run. Exit status 1 after a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.testing.database import DatabaseServer
from graphile_worker.testing.scratch import SETTINGS, scratch_folder

from .case import Case, Result, carry_out

MANY = 10_001
BACKLOG = 200_000
CASES = [
    case
    for workers in (1, 3)
    for case in (
        Case("alone", workers, 1, (1,)),
        Case("among others", workers, MANY, (5_000,)),
        Case("while draining", workers, BACKLOG, adds_urgent=True),
        Case("at the end", workers, MANY, (MANY,)),
        Case("two", workers, MANY + 1, (4_000, 7_000)),
    )
]
HEADER = (
    f"{'CASE':<15}{'WORKERS':>8}{'OTHERS':>9}{'HELD':>9}{'DEATHS':>8}{'UNCOUNTED':>11}{'GIVEN UP':>10}"
    f"{'DONE':>9}{'SECOND RUNS':>13}{'RECOVERED':>11}{'MOST':>6}{'FAILED':>8}"
)


def line_of(result: Result) -> str:
    """`UNCOUNTED`: deaths that count against no poison. `RECOVERED` and what follows is about other jobs."""
    case, blamed = result.case, result.blamed
    counted = sum(result.charged.get(job, 0) + (job in result.failed) for job in result.poison)
    return (
        f"{case.name:<15}{case.workers:>8}{len(result.short):>9,}{sum(result.held):>9,}{result.deaths:>8}"
        f"{result.deaths - counted:>11}{result.given_up_after:>8.1f} s{result.done_after:>7.1f} s"
        f"{result.second_runs:>13,}{len(blamed):>11,}{max(blamed.values(), default=0):>6}"
        f"{len(result.failed.keys() & result.short):>8}"
    )


async def all_cases(
    server: DatabaseServer, cases: Sequence[Case], at_once: int, flags: Sequence[str]
) -> bool:
    """Carry them out and show what happened; whether all was well."""
    template = server.create_template()
    turn = asyncio.Semaphore(at_once)

    async def one(case: Case) -> bool:
        async with turn:
            # In a thread: the server waits for sessions whose answers this event loop has to read.
            name = await asyncio.to_thread(server.create_database, template=template)
            with tempfile.TemporaryDirectory() as folder:
                result = await carry_out(case, server.url(name), Path(folder), flags)
        faults = result.faults()
        print(line_of(result), *(f"  FAULT: {fault}" for fault in faults), sep="\n", flush=True)
        return not faults

    print(HEADER, flush=True)
    return all(await asyncio.gather(*map(one, cases)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.poison", description=__doc__.splitlines()[0])
    names = list(dict.fromkeys(case.name for case in CASES))
    parser.add_argument("--case", choices=names, action="append", help="only this one; repeatable")
    parser.add_argument("--workers", type=int, choices=(1, 3), help="only cases with as many")
    parser.add_argument("--at-once", type=int, default=2, help="cases at the same time (default 2)")
    parser.add_argument("flags", nargs="*", help="for the workers, after --: -- -j 10")
    options = parser.parse_args()
    cases = [
        case
        for case in CASES
        if case.name in (options.case or names) and options.workers in (None, case.workers)
    ]
    with scratch_folder() as folder, EmbeddedPostgres(folder, settings=SETTINGS) as embedded:
        print(f"PostgreSQL {embedded.version}, flags of the workers: {' '.join(options.flags) or 'none'}")
        server = DatabaseServer(embedded.url())
        return 0 if asyncio.run(all_cases(server, cases, options.at_once, options.flags)) else 1


if __name__ == "__main__":
    sys.exit(main())
