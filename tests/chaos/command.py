"""The command behind `make chaos`: seeds one after the other, then a table; status 1 on a violation."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from chaos.adders import MANY_IN_QUEUES, MANY_KEPT, MANY_SHORT, Load, load_of
from chaos.checker import Violation, check
from chaos.history import History
from chaos.report import HeldCounts, RunCounts, held_counts, run_counts, sum_of, table
from chaos.run import Setup, run
from chaos.server import ChaosServer, chaos_server
from chaos.settings import DEFAULT, HELD_MODES, MODES, QUEUE_MODES, SHORT, Mode, Timing
from support.programs import find, missing

SHORT_SECONDS = 15.0
DEFAULT_SECONDS = 60.0
HELD_SECONDS = 15.0  # at least; the plan decides
LEAST_HELD = 10_000  # jobs of each seed
KEPT_JOBS = 10_000
SHOWN = 20  # violations of one seed


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", type=int, default=20, metavar="N", help="the seeds 1 to N (default 20)")
    which.add_argument("--seed", type=int, metavar="SEED", help="this one only, to repeat it")
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"seconds of load (default {SHORT_SECONDS:g}; with default settings {DEFAULT_SECONDS:g})",
    )
    parser.add_argument(
        "--default-settings", action="store_true", help="recovery as a user has it: everything takes longer"
    )
    parser.add_argument(
        "--kept", action="store_true", help=f"{KEPT_JOBS:,} short jobs, most of which are kept"
    )
    parser.add_argument(
        "--held",
        action="store_true",
        help="short jobs in large numbers, which are held; always with default settings",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep histories and logs of all runs there"
    )
    parser.add_argument(
        "--judge", type=Path, metavar="FILE", help="judge a history that was kept, in place of running"
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    if options.judge is not None:
        return _judge(msgspec.json.decode(options.judge.read_bytes(), type=History))
    seeds = [options.seed] if options.seed is not None else list(range(1, options.seeds + 1))
    with chaos_server() as server:
        return asyncio.run(_all(options, seeds, server))


def _judge(history: History) -> int:
    violations = check(history)
    print(*map(str, violations), table([run_counts(history, violations)]), sep="\n")
    if history.is_held:
        print(held_counts(history))
    return 1 if violations else 0


async def _all(options: argparse.Namespace, seeds: Sequence[int], server: ChaosServer) -> int:
    timing, seconds = _timing(options)
    say(f"PostgreSQL {server.version}; {timing}; {seconds:g} s of load for each seed")
    if find("pgbouncer") is None:
        say(f"no worker behind a pooler: {missing('pgbouncer')}")
    place = options.keep or Path(tempfile.gettempdir()) / "graphile-worker-chaos"
    place.mkdir(parents=True, exist_ok=True)
    lines: list[RunCounts] = []
    held: list[HeldCounts] = []
    for seed in seeds:
        say(f"\nseed {seed}")
        began = time.monotonic()
        history = await run(
            Setup(
                seed=seed,
                seconds=seconds,
                timing=timing,
                load=_load(options, seed),
                modes=_modes(options, seed),
                is_held=options.held,
                least_held=LEAST_HELD // 5 if _load(options, seed).bulk_queues else LEAST_HELD,
            ),
            server,
            say=say,
            keep=partial(_keep_logs, place / f"seed-{seed}"),
        )
        violations = check(history)
        lines.append(run_counts(history, violations))
        say(f"{time.monotonic() - began:7.2f} s  {lines[-1].jobs} jobs, {len(violations)} violations")
        if options.held:
            held.append(held_counts(history))
            say(f"           {held[-1]}")
        if violations or options.keep is not None:
            path = place / f"seed-{seed}.json"
            path.write_bytes(msgspec.json.format(msgspec.json.encode(history), indent=1))
            _tell(violations, f"--seed {seed}{_same(options)}", path)
        else:
            shutil.rmtree(place / f"seed-{seed}", ignore_errors=True)
    say("\n" + table(lines))
    if held:
        say(f"\nall seeds: {sum_of(held)}")
    return 1 if any(line.violations for line in lines) else 0


def _timing(options: argparse.Namespace) -> tuple[Timing, float]:
    if options.held:
        return DEFAULT, options.seconds or HELD_SECONDS
    if options.default_settings:
        return DEFAULT, options.seconds or DEFAULT_SECONDS
    return SHORT, options.seconds or SHORT_SECONDS


def _modes(options: argparse.Namespace, seed: int) -> Sequence[Mode]:
    if options.held:
        return QUEUE_MODES if _load(options, seed).bulk_queues else HELD_MODES
    return MODES


def _load(options: argparse.Namespace, seed: int) -> Load:
    if options.held:
        return MANY_IN_QUEUES if seed % 2 == 0 else MANY_SHORT
    return msgspec.structs.replace(MANY_KEPT, jobs=KEPT_JOBS) if options.kept else load_of(seed)


def _same(options: argparse.Namespace) -> str:
    """The arguments that a run must have to be the same again."""
    more = " --default-settings" if options.default_settings else ""
    more += " --kept" if options.kept else ""
    more += " --held" if options.held else ""
    return more + (f" --seconds {options.seconds:g}" if options.seconds else "")


def _tell(violations: Sequence[Violation], words: str, path: Path) -> None:
    if not violations:
        return
    for violation in violations[:SHOWN]:
        say(f"  VIOLATION {violation}")
    if len(violations) > SHOWN:
        say(f"  … and {len(violations) - SHOWN} more")
    say(f"  repeat it: make chaos CHAOS_ARGS='{words}'; history: {path}, logs beside it")


def _keep_logs(place: Path, folder: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
