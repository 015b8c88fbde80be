"""What the log says while something fails: enough, and not more; and the page that explains it."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

from faults.scene import Log
from graphile_worker.database.connections.errors import explained
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.worker.context import FailureLog
from support.pool_parts import pool_context

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


async def test_a_night_of_failures_takes_few_lines(log: Log) -> None:
    clock = FakeClock(datetime(2030, 1, 1, tzinfo=UTC))
    trouble = FailureLog(pool_context(clock=clock), "it fails: %s; trying again", "it works again")
    for _ in range(8 * 3600 // 5):
        trouble.failed(ConnectionRefusedError(111, "Connection refused"))
        await clock.advance(5.0)
    assert log.lines[0].startswith("it fails: the database server cannot be reached: Connection refused; is")
    assert log.lines[1].endswith("(for 1 min, 13 attempts); trying again")
    assert 5 < len(log.lines) < 20
    trouble.succeeded()
    trouble.succeeded()
    assert log.lines[-1] == "it works again (after 8 h)"
    trouble.failed(ConnectionRefusedError(111, "Connection refused"))
    assert "for 0 s" not in log.lines[-1]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            TimeoutError(),
            "the database server did not answer in time; is the address right and the server up?",
        ),
        (
            asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
            "the connection to the database server was closed from the other side",
        ),
        (
            asyncpg.AdminShutdownError("terminating connection"),
            "the connection to the database server was lost: terminating connection",
        ),
        (ConnectionError("the connection has gone silent"), "the connection has gone silent"),
        (asyncpg.DeadlockDetectedError("deadlock detected"), "deadlock detected"),
        (ValueError(), "ValueError"),
    ],
)
def test_an_error_is_told_in_words_that_help(error: Exception, text: str) -> None:
    assert explained(error) == text


def _beginnings() -> set[str]:
    """The lines that the tests of this folder wait for, as far as they are whole beginnings."""
    found = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "says"
            ):
                texts = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
                found |= {text for text in texts if text.endswith(": ") or " again" in text}
    return found


def test_every_line_that_these_tests_wait_for_is_explained_in_the_documentation() -> None:
    page = " ".join(PAGE.read_text().split())
    assert len(_beginnings()) > 6
    assert {text for text in _beginnings() if text.strip() not in page} == set()
