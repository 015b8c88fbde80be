"""Runs combinations: `python -m scripts.integrations [quick | all | NAME …]`."""

from __future__ import annotations

import argparse
import sys
import time

from .combinations import COMBINATIONS, QUICK, Combination
from .environments import environment_of, run_tests, versions_in


def main() -> int:
    """Run the chosen combinations; the number of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("chosen", nargs="*", default=["all"], help="quick, all, or names of combinations")
    parser.add_argument("--list", action="store_true", help="show the combinations and run nothing")
    arguments = parser.parse_args()
    combinations = _chosen(arguments.chosen)
    if arguments.list:
        for each in combinations:
            _say(f"{each.name}: {', '.join(each.packages)}")
        return 0
    failed = [each.name for each in combinations if not _passes(each)]
    _say(f"failed: {', '.join(failed)}" if failed else "all combinations passed or were skipped")
    return len(failed)


def _chosen(names: list[str]) -> list[Combination]:
    known = {each.name: each for each in COMBINATIONS}
    groups = {"all": list(known), "quick": list(QUICK)}
    chosen = [each for name in names for each in groups.get(name, [name])]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        sys.exit(f"there is no combination {', '.join(unknown)}; known: quick, all, {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(chosen)]


def _passes(combination: Combination) -> bool:
    began = time.monotonic()
    python = environment_of(combination)
    if python is None:
        _say(f"{combination.name}: skipped, there is none of {', '.join(combination.pythons)}")
        return True
    _say(f"{combination.name}: {versions_in(python, combination)}, ready after {_since(began)}")
    passed = run_tests(python, combination)
    _say(f"{combination.name}: {'passed' if passed else 'FAILED'} after {_since(began)}")
    return passed


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
