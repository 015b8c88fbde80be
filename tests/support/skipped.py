"""Records which tests a run skipped, and runs exactly these: `make test`, then `make skipped`.

So a machine can first show that the suite passes without the programs that some tests need, then get these
programs and run only what was left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

RECORD = "--record-skipped"
ONLY = "--only-skipped"


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("skipped tests")
    group.addoption(RECORD, metavar="FILE", help="write the ids of skipped tests to this file")
    group.addoption(ONLY, metavar="FILE", help="run only the tests in a file of --record-skipped")


def install(config: pytest.Config) -> None:
    if chosen := config.getoption(ONLY):
        config.pluginmanager.register(OnlySkipped(config, _read(Path(chosen))))
    if (record := config.getoption(RECORD)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkippedTests(Path(record)))


class SkippedTests:
    """A pytest plugin of the process that sees the reports of all others.

    A file that is skipped as a whole counts by its name. A test that is expected to fail was not skipped.
    """

    def __init__(self, file: Path) -> None:
        self._file = file.absolute()
        self._file.unlink(missing_ok=True)  # nobody must take the record of an earlier run for this one's
        self._ids: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._see(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._see(report)

    def _see(self, report: Any) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._ids.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(sorted(self._ids), indent=0))


class OnlySkipped:
    """A pytest plugin that collects the files of recorded tests only, and deselects their other tests."""

    def __init__(self, config: pytest.Config, ids: frozenset[str]) -> None:
        self._ids = ids
        if config.args_source is not pytest.Config.ArgsSource.ARGS and ids:
            config.args = sorted({str(config.rootpath / _file(each)) for each in ids})

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self._ids or _file(item.nodeid) in self._ids]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK  # nothing was skipped, or whole files are again


def _read(file: Path) -> frozenset[str]:
    try:
        return frozenset(json.loads(file.read_text()))
    except OSError as error:
        raise pytest.UsageError(f"{ONLY} {file}: {error.strerror}; run make test first") from None


def _file(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]
