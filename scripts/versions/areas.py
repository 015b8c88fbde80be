"""Which tests are run on each version, by what they are about, and how many of them passed."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
AREAS = {
    "migrations": ("tests/migrations/",),
    "held batches": ("tests/held/", "tests/worker/test_holds"),
    "engine": (
        "tests/worker/",
        "tests/queue_concurrency/",
        "tests/directives/",
        "tests/faults/test_role_settings",
    ),
    "recovery": ("tests/recovery/",),
    "cron": ("tests/cron/",),
    "control": ("tests/pauses/", "tests/cancel/", "tests/requests/"),
    "history": ("tests/history/", "tests/task_statistics/"),
    "client": ("tests/client/", "tests/testing/test_database"),
    "statements": ("tests/queries/", "tests/sql_functions/"),
    "plans": ("tests/plans/",),
    "dashboard": ("tests/admin/", "tests/diagnostics/"),
}
"""Beginnings of paths; of several areas the first one counts."""

QUICK = ("migrations", "cron", "control", "history", "statements")
"""What depends most on the version, without tests that take long."""


def paths(areas: tuple[str, ...]) -> list[str]:
    """The arguments of pytest for these areas."""
    return sorted({path for area in areas for path in _paths(area)})


def _paths(area: str) -> set[str]:
    """Folders, and files by the beginnings of their names."""
    named = [begin for begin in AREAS[area] if not begin.endswith("/")]
    files = {str(file.relative_to(ROOT)) for begin in named for file in ROOT.glob(f"{begin}*.py")}
    return files | {begin for begin in AREAS[area] if begin.endswith("/")}


def results(report: Path) -> dict[str, Counter[str]]:
    """How many tests of each area passed, failed and were skipped, from the XML report of pytest."""
    counted = {area: Counter[str]() for area in AREAS}
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314, our own
        found = {child.tag for child in case}
        outcome = "failed" if found & {"failure", "error"} else "skipped" if "skipped" in found else "passed"
        if area := _area_of(case.get("classname") or case.get("name") or ""):
            counted[area][outcome] += 1
    return counted


def _area_of(name: str) -> str | None:
    path = name.replace(".", "/")
    return next((area for area, begins in AREAS.items() if path.startswith(begins)), None)
