"""Runs versions: `python -m scripts.versions [quick] [all | 12 …]`; `quick` alone is the oldest one."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from scripts.npm_packages import OutOfReachError

from .areas import AREAS, QUICK, ROOT, paths, results
from .programs import RELEASES, programs_of

REPORTS = Path(sys.prefix) / "versions"
AT_ONCE = 2
PROCESSES = os.environ.get("TEST_PROCESSES", "3")


@dataclass
class Run:
    """What was tested on one version. Without results, `remark` says why."""

    major: int
    areas: tuple[str, ...]
    results: dict[str, Counter[str]] = field(default_factory=dict)
    seconds: float = 0.0
    remark: str = ""
    failed: bool = False


def main() -> int:
    """Test the chosen versions; the number of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "chosen", nargs="*", default=["all"], help="major versions, or all; quick: some areas only"
    )
    parser.add_argument("--pytest-args", default="", help="further arguments of pytest, such as '-k lease'")
    arguments = parser.parse_args()
    runs = _chosen(arguments.chosen)
    REPORTS.mkdir(exist_ok=True)
    further = shlex.split(arguments.pytest_args)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(lambda run: _test(run, further, alone=len(runs) == 1), runs))
    _say(_table(runs))
    failed = [str(run.major) for run in runs if run.failed]
    _say(f"failed: {', '.join(failed)}; see {REPORTS}" if failed else "all versions passed or were skipped")
    return len(failed)


def _chosen(names: list[str]) -> list[Run]:
    known = {str(major): major for major in RELEASES}
    areas = QUICK if "quick" in names else tuple(AREAS)
    chosen = [name for name in dict.fromkeys(names) if name != "quick"]
    if chosen == ["all"]:
        chosen = list(known)
    if unknown := [name for name in chosen if name not in known]:
        sys.exit(f"there is no version {', '.join(unknown)}; known: quick, all, {', '.join(known)}")
    return [Run(known[name], areas) for name in chosen or [min(known, key=int)]]


def _test(run: Run, further: list[str], *, alone: bool) -> None:
    began = time.monotonic()
    try:
        programs = programs_of(run.major)
    except OutOfReachError as error:
        run.remark = f"skipped: {error}"
        _say(f"PostgreSQL {run.major}: {run.remark}")
        return
    report, log = REPORTS / f"{run.major}.xml", REPORTS / f"{run.major}.log"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "scripts.versions.on_a_server"]
    command += [f"--junit-xml={report}", f"--numprocesses={PROCESSES}"]
    command += [*paths(run.areas), *further]
    environment = {**os.environ, "TEST_POSTGRES_BIN": str(programs)}
    environment.pop("TEST_DATABASE_URL", None)
    environment.pop("TEST_POSTGRES_VERSION", None)
    _say(f"PostgreSQL {run.major}: {', '.join(run.areas)}")
    with log.open("w") as output:
        status = subprocess.run(  # noqa: S603
            command,
            cwd=ROOT,
            env=environment,
            stdout=None if alone else output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    run.seconds = time.monotonic() - began
    run.failed = status != 0
    if report.exists():
        run.results = results(report)
    else:
        run.remark = f"pytest ended with status {status}"
    _say(f"PostgreSQL {run.major}: {'FAILED' if run.failed else 'passed'} after {run.seconds:.0f} s")
    if run.failed and not alone:
        lines = log.read_text(errors="replace").splitlines()
        _say("\n".join(line for line in lines if line.startswith(("FAILED", "ERROR"))))


def _table(runs: list[Run]) -> str:
    """A line for each version, a column for each area: how many tests passed, failed and were skipped."""
    areas = [area for area in AREAS if any(area in run.areas for run in runs)]
    rows = [["", *areas, "seconds"]]
    rows += [[str(run.major), *(_cell(run, area) for area in areas), f"{run.seconds:.0f}"] for run in runs]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    remarks = [f"{run.major}: {run.remark}" for run in runs if run.remark]
    return "\n".join(["passed / failed / skipped", *lines, *remarks])


def _cell(run: Run, area: str) -> str:
    counted = run.results.get(area)
    if not counted:
        return "-"
    return f"{counted['passed']} / {counted['failed']} / {counted['skipped']}"


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
