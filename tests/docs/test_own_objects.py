"""Every table, function and procedure of our own is listed in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from graphile_worker.database.sql import FOLDER

LIST = Path(__file__).parents[2] / "docs" / "compatibility.md"
CREATED = re.compile(
    r"^create (?:or replace )?(?:unlogged )?(?:table|function|procedure) (?:if not exists )?"
    r":GRAPHILE_WORKER_SCHEMA\.(_private_py_\w+)",
    re.MULTILINE,
)


def test_every_object_of_our_own_is_listed() -> None:
    files = (FOLDER / "own_objects").iterdir()
    created = {name for file in files for name in CREATED.findall(file.read_text())}
    assert "_private_py_last_death" in created
    listed = set(re.findall(r"`(_private_py_\w+)`", LIST.read_text()))
    assert created - listed == set()
