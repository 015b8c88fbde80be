"""A pytest plugin that keeps the tests which another version of the server could fail.

They use the server of the run and start no worker processes, whose signals and ends have little to do with
it. Of a test with many cases it keeps the first and the last: the cases are about our own decisions.
Statements and migrations are tested in every case.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

WHOLE = ("tests/migrations/", "tests/plans/", "tests/queries/", "tests/sql_functions/")
PROCESSES = "start"
"""The fixture that starts worker processes."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in filter(_is_about_the_server, items):
        tests[item.nodeid.split("[")[0]].append(item)
    kept: set[pytest.Item] = set()
    for name, cases in tests.items():
        kept.update(cases if name.startswith(WHOLE) else (cases[0], cases[-1]))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _is_about_the_server(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return "server" in fixtures and PROCESSES not in fixtures
