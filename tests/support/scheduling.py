"""How the processes of a test run share the tests: what takes longest comes first, so that all end together.

A run keeps in pytest's cache how long its tests took, and the next run reads that. Without a record, as in a
fresh clone, files with many tests come first.

The tests of a file run in one process if they share what a fixture starts for the whole file. Other files are
split into parts, so that no process works on one for minutes while the others have nothing left to do.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

RECORD = "graphile_worker/durations"  # in pytest's cache
SHORT = 0.2  # seconds; the record leaves shorter tests out
USUAL = 0.1  # seconds that a test takes which is not in the record
PART = 10.0  # seconds that a part of a file takes, about
SHARED = re.compile(r"\bscope=.(class|module|package)\b")


class Units:
    """What runs in one process, in this order: a file, a part of one, or a long test."""

    def __init__(self, tests: Iterable[str], record: Mapping[str, float], root: Path) -> None:
        self._record = record
        self._root = root
        self._parts: dict[str, int] = {}
        self._seconds: dict[str, float] = {}
        in_files: dict[str, list[str]] = {}
        for test in tests:
            in_files.setdefault(_file(test), []).append(test)
        for file, own in in_files.items():
            seconds = sum(map(self._seconds_of, own))
            self._parts[file] = 0 if self._is_shared(file) else max(1, round(seconds / PART))
            for test in own:
                unit = self.of(test)
                self._seconds[unit] = self._seconds.get(unit, 0.0) + self._seconds_of(test)

    def of(self, test: str) -> str:
        """The unit of a test, in whatever order the tests are."""
        parts = self._parts[_file(test)]
        if parts and self._seconds_of(test) > PART / 2:
            return test
        return f"{_file(test)}#{zlib.crc32(test.encode()) % parts}" if parts else _file(test)

    def place(self, test: str) -> tuple[float, str]:
        """Sorts tests so that those of a unit stay together, and the longest units come first."""
        unit = self.of(test)
        return -self._seconds[unit], unit

    def _seconds_of(self, test: str) -> float:
        return self._record.get(test, USUAL)

    def _is_shared(self, file: str) -> bool:
        """Whether a fixture of the file or its folders outlives a test, but not the run."""
        path = self._root / file
        folders = [path.parent, *path.parent.parents]
        below = folders[: folders.index(self._root)] if self._root in folders else []
        texts = [path, *(folder / "conftest.py" for folder in below)]
        return any(SHARED.search(text.read_text()) for text in texts if text.exists())


class LongestFirst:
    """A pytest plugin for runs with several processes: `pytest --numprocesses=5`."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._record = _record_of(config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        config.option.loadscopereorder = False  # the order of the collection is kept
        scheduling: Any = LoadScopeScheduling(config, log)

        @cache
        def units() -> Units:
            """All processes have collected the same tests when this is first called."""
            return self.units_of(next(iter(scheduling.registered_collections.values())))

        scheduling._split_scope = lambda test: units().of(test)
        return scheduling

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        units = self.units_of(item.nodeid for item in items)
        items.sort(key=lambda item: units.place(item.nodeid))

    def units_of(self, tests: Iterable[str]) -> Units:
        return Units(tests, self._record, self._root)


class Durations:
    """A pytest plugin of the process that sees the reports of all others: it keeps how long tests take."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        root = session.config.rootpath
        kept = {
            test: seconds
            for test, seconds in _record_of(session.config).items()
            if test not in self._seconds and (root / _file(test)).exists()
        }
        measured = {test: round(seconds, 1) for test, seconds in self._seconds.items() if seconds >= SHORT}
        if store := getattr(session.config, "cache", None):
            store.set(RECORD, kept | measured)


def _record_of(config: pytest.Config) -> dict[str, float]:
    """How long tests took in earlier runs; nothing with `-p no:cacheprovider`."""
    store = getattr(config, "cache", None)
    return {} if store is None else store.get(RECORD, {})


def _file(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]
