"""Whole crontabs: parsing, error messages, and loading."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from graphile_worker.cron import (
    CronItem,
    collect_cron_items,
    parse_cron_items,
    parse_crontab,
    read_crontab,
    read_crontab_file,
)
from graphile_worker.cron.matcher import PatternMatcher
from graphile_worker.errors import CrontabError

WHOLE = """\
# A comment, and below an empty line

* * * * * simple
0 4 * * * four_a_m
0 0 * * 0 sundays
0 0 * * 7 sundays ?id=sundays_as_seven
0 0 * * 2 tuesdays {"isTuesday": true}
*/10,7,56-59 1 1 1 1 one ?id=stuff&fill=4w3d2h1m&max=3&queue=my_queue&priority=3 {a:{stuff:"here # hash"}}
    *      *      *       *       *     lots_of_spaces
* * * * * with_key ?jobKey=my_key
* * * * * with_key_and_mode ?jobKey=my_key&jobKeyMode=preserve_run_at
* * * * * nested/folder/task
* * * * * nested:task ?id=last
"""


@pytest.mark.compat("crontab")
def test_a_whole_crontab_is_read_in_order() -> None:
    items = parse_crontab(WHOLE, source="my/crontab")
    assert [(item.task_identifier, item.identifier) for item in items] == [
        ("simple", "simple"),
        ("four_a_m", "four_a_m"),
        ("sundays", "sundays"),
        ("sundays", "sundays_as_seven"),
        ("tuesdays", "tuesdays"),
        ("one", "stuff"),
        ("lots_of_spaces", "lots_of_spaces"),
        ("with_key", "with_key"),
        ("with_key_and_mode", "with_key_and_mode"),
        ("nested/folder/task", "nested/folder/task"),
        ("nested:task", "last"),
    ]
    assert items[2].match.fields == items[3].match.fields  # type: ignore[attr-defined]
    assert items[4].payload == {"isTuesday": True}
    sixth = items[5]
    assert isinstance(sixth.match, PatternMatcher)
    assert sixth.match.fields.minutes == (0, 7, 10, 20, 30, 40, 50, 56, 57, 58, 59)
    assert sixth.options.backfill_period == 2_685_660.0
    assert (sixth.options.max_attempts, sixth.options.queue_name, sixth.options.priority) == (
        3,
        "my_queue",
        3,
    )
    assert sixth.payload == {"a": {"stuff": "here # hash"}}
    assert (sixth.source, sixth.line, sixth.column, sixth.pattern) == (
        "my/crontab",
        8,
        22,
        "*/10,7,56-59 1 1 1 1",
    )
    assert (items[8].options.job_key, items[8].options.job_key_mode) == ("my_key", "preserve_run_at")


def test_every_fault_is_told_at_once_with_its_place_and_a_mark() -> None:
    text = "60 24 * * * a ?max=0&foo=1\n* * * * * ok\n\n  * * * x * b\n* * * * * ok {a:}"
    with pytest.raises(CrontabError) as caught:
        parse_crontab(text, source="deploy/crontab")
    places = [problem.place for problem in caught.value.problems]
    assert places == [
        "deploy/crontab:1:1",
        "deploy/crontab:1:4",
        "deploy/crontab:1:16",
        "deploy/crontab:1:22",
        "deploy/crontab:4:9",
        "deploy/crontab:5:14",
    ]
    assert (
        "deploy/crontab:4:9: month: unsupported syntax 'x'; allowed: 1 to 12 or names such as JAN, "
        "a range a-b or a-b/n, *, */n, or a comma list of these\n"
        "      * * * x * b\n"
        "            ^"
    ) in str(caught.value)


def test_the_mark_stands_below_its_character_behind_tabs_too() -> None:
    with pytest.raises(CrontabError) as caught:
        parse_crontab("*\t60 * * * a")
    assert str(caught.value).splitlines()[1:] == ["    *\t60 * * * a", "     \t^"]


def test_every_option_that_cannot_be_used_is_told() -> None:
    with pytest.raises(CrontabError) as caught:
        parse_crontab(f"* * * * * a ?tz=Nowhere&max=0&priority=99999&fill=9999w&id={'x' * 129}")
    messages = [problem.message for problem in caught.value.problems]
    assert [message.split("'")[1] for message in messages] == ["tz", "max", "priority", "fill", "id"]
    assert "unknown time zone 'Nowhere'" in messages[0]
    assert "128" in messages[4]


@pytest.mark.parametrize("key", ["a", '"a"'], ids=["JSON5", "strict JSON"])
def test_a_payload_that_is_nested_too_deeply_is_a_fault(key: str) -> None:
    with pytest.raises(CrontabError, match="nested too deeply"):
        parse_crontab("* * * * * a {" + key + ":" + "[" * 5000 + "]" * 5000 + "}")


def test_strict_json_is_read_without_the_slow_reader_of_json5() -> None:
    code = (
        "import sys; from graphile_worker.cron import parse_crontab;"
        "parse_crontab('* * * * * a {\"a\": [1, null]}'); assert 'json5' not in sys.modules;"
        "parse_crontab('* * * * * a {a: 1}'); assert 'json5' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_tasks_are_faults_if_the_known_ones_are_given() -> None:
    text = "* * * * * send_mail\n* * * * * other\n60 * * * * nothing ?max=0\n* * * * *"
    items, problems = read_crontab(text, known_tasks=["send_email", "third"])
    assert [item.task_identifier for item in items] == ["send_mail", "other"]
    assert [(problem.line, problem.column) for problem in problems] == [
        (1, 11),
        (2, 11),
        (3, 1),
        (3, 12),
        (3, 21),
        (4, 1),
    ]
    assert problems[0].message == "unknown task 'send_mail'; did you mean 'send_email'?"
    assert problems[1].message == "unknown task 'other'"
    assert str(problems[1]).splitlines()[1:] == ["    * * * * * other", "              ^"]
    assert problems[3].message == "unknown task 'nothing'"


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "crontab"
    path.write_bytes(b"\xef\xbb\xbf* * * * * a\r\n")
    assert [item.task_identifier for item in read_crontab_file(path)] == ["a"]
    assert [item.task_identifier for item in parse_crontab("\ufeff* * * * * a")] == ["a"]


def test_a_missing_file_means_no_items_and_is_mentioned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "graphile_worker.cron"):
        assert read_crontab_file(tmp_path / "crontab") == []
    assert "no crontab at" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


def test_a_file_that_cannot_be_read_is_an_error_in_the_log_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_crontab_file(tmp_path) == []
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(CrontabError, match="my-crontab: the crontab does not exist"):
        collect_cron_items(crontab_file=tmp_path / "my-crontab", must_exist=True)
    with pytest.raises(CrontabError, match="the crontab cannot be read: Is a directory"):
        collect_cron_items(crontab_file=tmp_path, must_exist=True)


def test_items_of_several_places_must_not_share_an_identifier() -> None:
    items = [
        *parse_crontab("# a\n* * * * * send ?id=daily", source="one"),
        *parse_crontab("* * * * * clean\n* * * * * daily", source="two"),
        *parse_cron_items([CronItem("send", "* * * * *", identifier="daily")]),
    ]
    with pytest.raises(CrontabError) as caught:
        collect_cron_items(parsed_cron_items=items)
    assert [(problem.source, problem.line) for problem in caught.value.problems] == [
        ("two", 2),
        ("item 0 of parse_cron_items", None),
    ]
    assert str(caught.value).count("the identifier 'daily' is already used in one:2") == 2


def test_a_file_with_faults_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "my-crontab"
    path.write_text("* * * * *\n")
    with pytest.raises(CrontabError, match="my-crontab:1:1"):
        read_crontab_file(path)
    path.write_bytes(b"* * * * * a {a:'\xff'}")
    with pytest.raises(CrontabError, match="not UTF-8"):
        read_crontab_file(path)


@pytest.mark.compat("CR10")
def test_text_or_parsed_items_take_the_place_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "crontab"
    path.write_text("* * * * * from_file\n")
    items = parse_cron_items([CronItem("from_code", "* * * * *")])
    assert [item.task_identifier for item in collect_cron_items(crontab_file=path)] == ["from_file"]
    assert [
        item.task_identifier for item in collect_cron_items(crontab="* * * * * from_text", crontab_file=path)
    ] == ["from_text"]
    assert collect_cron_items(parsed_cron_items=items, crontab_file=path) == items
    assert collect_cron_items() == []


@pytest.mark.compat("CR10")
def test_text_and_parsed_items_together_and_unparsed_items_are_refused() -> None:
    with pytest.raises(CrontabError, match="not both"):
        collect_cron_items(crontab="", parsed_cron_items=[])
    with pytest.raises(CrontabError, match="parse_cron_items"):
        collect_cron_items(parsed_cron_items=[CronItem("a", "* * * * *")])  # type: ignore[list-item]
