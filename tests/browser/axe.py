"""axe-core, which examines pages for faults of accessibility. It comes from npm when the tests run."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.programs import needed

VERSION = "4.14.0"
FOLDER = Path(sys.prefix) / "axe-core"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
"""All that another theme can change. The other rules examine the structure, which is the same in both."""
FETCH_WITHIN = 120  # seconds


@cache
def axe_source() -> str:
    """The script; skips the test with the reason if the registry is out of reach."""
    script = FOLDER / VERSION / "package" / "axe.min.js"
    if not script.is_file():
        _fetch(script.parents[1])
    return script.read_text(encoding="utf-8")


def _fetch(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = [needed("npm"), "pack", "--silent", f"axe-core@{VERSION}"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_WITHIN)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"axe-core cannot be had from npm: {error}")
    if done.returncode:
        pytest.skip(f"axe-core cannot be had from npm: {done.stderr.strip()[-200:]}")
    with tarfile.open(folder / done.stdout.split()[-1]) as packed:
        packed.extractall(folder, filter="data")


def violations(page: Any, rules: Sequence[str] = RULES) -> list[str]:
    """What axe finds on a page, one line for each rule with the first elements."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(axe_source())
    found = page.evaluate(
        "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})"
        ".then(result => result.violations)",
        list(rules),
    )
    return [_line(violation) for violation in found]


def _line(violation: dict[str, Any]) -> str:
    nodes = violation["nodes"]
    places = "; ".join(
        f"{node['target'][0]} ({' '.join(node['failureSummary'].split())[:200]})" for node in nodes[:3]
    )
    return f"{violation['id']} ({len(nodes)}): {violation['help']}: {places}"
