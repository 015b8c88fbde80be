"""`graphile-worker stats --since`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphile_worker.cli.commands.stats import BLOCKS, PLAIN_BLOCKS, ReportedRate, Time, bar_chart
from support.cases import looped
from support.command_line import Call, Result
from support.server import DatabaseServer
from task_statistics.tables import Tables, table_of, totals_of

Execute = Callable[[str], Any]
NOW = datetime.now(UTC).replace(second=0, microsecond=0)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def stats(call: Call, database_url: str) -> Any:
    def run(*arguments: object) -> Result:
        return call("stats", "-c", database_url, *arguments)

    return run


@pytest.fixture
def execute(server: DatabaseServer, database_url: str) -> Execute:
    """For tests that are no coroutines, because the command runs an event loop of its own."""
    return lambda statement: server.run(database_url, lambda connection: connection.execute(statement))


@pytest.fixture
async def tables(connection: Any) -> Tables:
    tables = Tables(connection)
    for number in range(10):
        await tables.write(NOW - number * MINUTE, totals_of(60, failed=1), task="send_email")
    await tables.write(NOW, totals_of(6, took=0.001), task="resize")
    return tables


def test_a_table_shows_what_each_task_did(tables: Tables, stats: Any) -> None:
    out = stats("--since", "1h").check().out
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert lines["send_email"][1:4] == ["600", "10", "0"]
    assert lines["resize"][1:4] == ["6", "0", "0"]
    assert lines["(all)"][1:4] == ["606", "10", "0"]
    assert float(lines["(all)"][4]) == pytest.approx(606 / 3600, rel=0.05)
    assert "Completed per minute" in out
    assert "█" in out


def test_one_task_needs_no_sum(tables: Tables, stats: Any) -> None:
    out = stats("--since", "15m", "--task", "resize").check().out
    assert "send_email" not in out
    assert "(all)" not in out


@looped(
    ("period", "per"),
    [
        ("2h", "per 2 minutes"),
        ("24h", "per hour"),
        ("7d", "per 3 hours"),
        ("30d", "per day"),
        ("90d", "per 2 days"),
    ],
)
def test_the_chart_fits_any_period(tables: Tables, stats: Any, period: str, per: str) -> None:
    out = stats("--since", period).check().out
    assert f"Completed {per}" in out
    assert max(len(line) for line in out.split("Completed")[1].splitlines()) < 80


def test_json_has_everything(tables: Tables, stats: Any) -> None:
    found = stats("--since", "1h", "--json").check().json
    assert sorted(found["tasks"]) == ["resize", "send_email"]
    assert found["total"]["completed"] == sum(step["completed"] for step in found["series"]) == 606
    assert set(found["total"]["run"]) == {"p50", "p95", "p99"}
    assert (found["step"], found["is_recorded"], found["backlog"]) == (60, True, [])


def test_months_are_in_whole_days(tables: Tables, stats: Any) -> None:
    found = stats("--since", "30d", "--json").check().json
    assert found["step"] == 86400
    assert found["since"].endswith("T00:00:00Z")
    assert found["total"]["completed"] == sum(step["completed"] for step in found["series"]) == 606
    assert all(step["start"].endswith("T00:00:00Z") for step in found["series"])


def test_samples_tell_about_all_runtimes(tables: Tables, stats: Any, execute: Execute) -> None:
    execute(
        f"insert into {table_of('samples')} values "
        "(now() - interval '1 h', 0, 0, 0, 0, 0, 0, 0, false, 0), "
        "(now() - interval '50 s', 100, 100, 0, 0, 70, 0, 0, false, 12.5), "
        "(now() - interval '40 s', 130, 4900, 0, 0, 3, 0, 0, false, 0)"
    )
    out = stats("--since", "1h").check().out
    assert "Ready jobs: 3 at" in out
    assert "at most 70 at" in out
    assert "Longest wait of a ready job: 12.5s, at" in out
    assert "About 4,294 jobs were completed by other runtimes, or removed." in out
    backlog = stats("--since", "1h", "--json").check().json["backlog"]
    assert max(step["oldest_wait"] for step in backlog) == 12.5
    assert "other runtimes" not in stats("--since", "7d").check().out  # samples are kept for two days
    assert stats("--since", "1h", "--task", "resize", "--json").check().json["backlog"] == []


def test_without_statistics_it_says_so(stats: Any) -> None:
    assert "No statistics since" in stats("--since", "1h").check().out
    assert "No statistics of send_email since" in stats("--since", "1h", "--task", "send_email").check().out


def test_without_tables_it_says_how_to_get_them(stats: Any, execute: Execute) -> None:
    execute(f"drop table {table_of('minutes')}")
    assert "graphile-worker migrate" in stats("--since", "1h").check().out
    assert stats("--since", "1h", "--json").check().json["is_recorded"] is False


@looped(
    ("arguments", "message"),
    [
        (["--task", "x"], "--task needs --since"),
        (["--since", "1h", "--exact"], "--exact counts the jobs of now"),
        (["--since", "soon"], "nor a period before now"),
        (["--since", "2999-01-01T00:00:00Z"], "since: must be before"),
    ],
)
def test_what_makes_no_sense_is_refused(stats: Any, arguments: list[str], message: str) -> None:
    result = stats(*arguments)
    assert result.status != 0
    assert message in result.err


# -- drawing -------------------------------------------------------------------------------------------------


def test_bars_are_as_high_as_their_values() -> None:
    *bars, axis = bar_chart([0, 1, 50, 100], begin="a", end="b", height=2)
    assert bars == ["100 |   █", "  0 | ▁██"]
    assert axis == "     a  b"


def test_a_chart_of_nothing_is_empty() -> None:
    assert bar_chart([0, 0, 0], begin="a", end="b", height=2) == ["0 |", "0 |", "   a b"]
    assert len(BLOCKS) == len(PLAIN_BLOCKS) == 9


@looped(
    ("seconds", "text"),
    [
        (0.000061, "61us"),
        (0.0123, "12.3ms"),
        (0.9996, "1s"),
        (59.2, "59.2s"),
        (125, "2m05s"),
        (7200, "2h"),
        (7320, "2h02m"),
    ],
)
def test_times_have_a_fitting_unit(seconds: float, text: str) -> None:
    assert str(Time(seconds)) == text


def test_rates_have_three_digits() -> None:
    assert [str(ReportedRate(value)) for value in (0, 0.01234, 12.34, 12345.6)] == [
        "0",
        "0.0123",
        "12.3",
        "12,346",
    ]
