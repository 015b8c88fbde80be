"""What each crontab text means: every row of the table, read or refused as Node reads or refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.cron import CronItem, ParsedCronItem, parse_cron_items, parse_crontab
from graphile_worker.cron.matcher import PatternMatcher
from graphile_worker.errors import CrontabError
from support.cases import looped

pytestmark = pytest.mark.compat("CR1", "CR2", "CR3", "CR4", "CR5", "CR6", "CR7", "CR8", "CR9")

DAY = 86400.0


def one(text: str) -> ParsedCronItem:
    (item,) = parse_crontab(text)
    return item


def fields(item: ParsedCronItem) -> Any:
    assert isinstance(item.match, PatternMatcher)
    return item.match.fields


def problem(text: str) -> Any:
    with pytest.raises(CrontabError) as caught:
        parse_crontab(text)
    assert len(caught.value.problems) == 1, caught.value
    return caught.value.problems[0]


@looped("text", ["", "   ", "\n\n", "# c", "   # c", "\t# c\r\n#"])
def test_empty_lines_and_comments_are_no_items(text: str) -> None:
    assert parse_crontab(text) == []


def test_a_line_without_options_takes_the_defaults() -> None:
    item = one("* * * * * a")
    assert (item.task_identifier, item.identifier, item.payload) == ("a", "a", None)
    assert item.options.backfill_period == 0
    assert item.options.max_attempts is item.options.queue_name is item.options.job_key is None
    assert item.options.job_key_mode is item.options.priority is item.options.tz is None
    assert [len(values) for values in (fields(item).minutes, fields(item).hours)] == [60, 24]
    assert [len(v) for v in (fields(item).dates, fields(item).months, fields(item).weekdays)] == [31, 12, 7]


@looped(
    "task",
    ["a-b", "a:b", "a/b", "_a", "nested/folder/task", "orders.tasks.nightly", "mails:orders.tasks.send"],
)
def test_task_names_that_are_allowed(task: str) -> None:
    assert one(f"* * * * * {task}").task_identifier == task


@looped(
    "command",
    [
        "1a",
        "-a",
        "a$b",
        "a b",
        "a # trailing",
        "a ?",
        "* a",
        "a ?id=x ?max=3",
        "a?id=x",
        "a {a:1} ?id=x",
        "a{a:1}",
        "a {a:1} x",
        "a [1]",
        "a {a",
    ],
)
def test_commands_that_are_refused(command: str) -> None:
    found = problem(f"* * * * * {command}")
    assert "invalid command specification" in found.message
    assert (found.line, found.column) == (1, 11)


@looped(
    ("command", "message"),
    [
        ("1a", "the name of a task begins with a letter or an underscore, not with '1'"),
        (".a", "the name of a task begins with a letter or an underscore, not with '.'"),
        ("a$b ?max=3", "the name of a task may not have '$'; allowed: letters, digits and _ : / . -"),
        ("täglich", "the name of a task may not have 'ä'; allowed"),
        ("a?id=x", "there must be a space before the '?'"),
        ("a{a:1}", "there must be a space before the '{'"),
        ("a b", "expected a task, then optionally ?options"),
    ],
)
def test_the_message_says_what_is_wrong_with_the_name(command: str, message: str) -> None:
    assert message in problem(f"* * * * * {command}").message


@pytest.mark.parametrize("line", ["* * * * *", "* * * * too_few", "* * * *"])
def test_lines_with_too_little_are_refused_with_their_number(line: str) -> None:
    found = problem(f"# one\n* * * * * ok\n{line}")
    assert "could not process the line" in found.message
    assert (found.line, found.column) == (3, 1)


@looped(
    "text",
    ["*\t*\t*\t*\t*\ta", "* * * * * a\r\n", "*  *   *    *     *      a", "* * * * * a   ", "   * * * * * a"],
)
def test_any_white_space_separates_and_surrounds(text: str) -> None:
    assert one(text).task_identifier == "a"


@looped(
    ("pattern", "message"),
    [
        ("60 * * * *", "60 is too large; allowed: 0 to 59"),
        ("* 24 * * *", "24 is too large; allowed: 0 to 23"),
        ("* * 0 * *", "0 is too small; allowed: 1 to 31"),
        ("* * 32 * *", "32 is too large; allowed: 1 to 31"),
        ("* * * 0 *", "0 is too small; allowed: 1 to 12"),
        ("* * * 13 *", "13 is too large; allowed: 1 to 12"),
        ("* * * * 8", "8 is too large; allowed: 0 to 7"),
        ("* * * * 5-8", "8 is too large"),
        ("1-70 * * * *", "70 is too large"),
        ("5-5 * * * *", "must be larger than its start"),
        ("5-3 * * * *", "must be larger than its start"),
        ("*/0 * * * *", "the step must be 1 or more"),
        ("-1 * * * *", "unsupported syntax"),
        ("1/5 * * * *", "unsupported syntax"),
        ("1-2-3 * * * *", "unsupported syntax"),
        ("1,,2 * * * *", "unsupported syntax"),
        ("1, * * * *", "unsupported syntax"),
        (", * * * *", "unsupported syntax"),
        ("? * * * *", "unsupported syntax"),
        ("* * L * *", "unsupported syntax"),
        ("MON * * * *", "unsupported syntax"),
        ("* * * * JAN", "unsupported syntax"),
        ("* * * SUN *", "unsupported syntax"),
        ("99999999999999999999 * * * *", "too large"),
        (f"{'9' * 5000} * * * *", "too large"),
        (f"*/{'0' * 5000} * * * *", "the step must be 1 or more"),
    ],
)
def test_time_fields_that_are_refused(pattern: str, message: str) -> None:
    assert message in problem(f"{pattern} a").message


@looped(
    ("minutes", "expected"),
    [
        ("*/1", list(range(60))),
        ("*/15", [0, 15, 30, 45]),
        ("*/90", [0]),
        (f"*/{'9' * 5000}", [0]),
        ("*/7,*/11", [0, 7, 11, 14, 21, 22, 28, 33, 35, 42, 44, 49, 55, 56]),
        ("007", [7]),
        ("5,1,3,1", [1, 3, 5]),
    ],
)
def test_minutes(minutes: str, expected: list[int]) -> None:
    assert list(fields(one(f"{minutes} * * * * a")).minutes) == expected


@looped(
    ("weekdays", "expected"),
    [("7", [0]), ("6-7", [0, 6]), ("0,7", [0]), ("*/2", [0, 2, 4, 6]), ("0-7", list(range(7)))],
)
def test_weekdays_where_seven_is_sunday(weekdays: str, expected: list[int]) -> None:
    assert list(fields(one(f"* * * * {weekdays} a")).weekdays) == expected


def test_steps_count_from_the_smallest_value_of_the_field() -> None:
    item = fields(one("* * */2 */5 * a"))
    assert list(item.dates) == list(range(1, 32, 2))
    assert list(item.months) == [1, 6, 11]


def test_a_date_that_never_comes_is_allowed() -> None:
    assert fields(one("0 0 30 2 * a")).dates == (30,)


# What these additions turn from an error of Node's into a meaning; every other row stands as it was.
@looped(
    ("line", "same_as"),
    [
        ("0-30/5 * * * * a", "0,5,10,15,20,25,30 * * * * a"),
        ("10-40/10 * * * * a", "10,20,30,40 * * * * a"),
        ("* * * * MON a", "* * * * 1 a"),
        ("* * * * SUN a", "* * * * 0 a"),
        ("* * * * mon-fri a", "* * * * 1-5 a"),
        ("* * * * Mon-Sat/2 a", "* * * * 1,3,5 a"),
        ("* * * * SAT-SUN a", "* * * * 0,6 a"),
        ("* * * * Tuesday,thursday a", "* * * * 2,4 a"),
        ("* * * * 5-7/2 a", "* * * * 0,5 a"),
        ("* * * JAN * a", "* * * 1 * a"),
        ("* * * mar-Nov/4 * a", "* * * 3,7,11 * a"),
        ("* * * december * a", "* * * 12 * a"),
        ("@hourly a", "0 * * * * a"),
        ("@daily a", "0 0 * * * a"),
        ("@midnight a", "0 0 * * * a"),
        ("@weekly a", "0 0 * * 0 a"),
        ("@monthly a", "0 0 1 * * a"),
        ("@yearly a", "0 0 1 1 * a"),
        ("@annually a ?id=x {a:1}", "0 0 1 1 * a ?id=x {a:1}"),
    ],
)
def test_what_is_beyond_node(line: str, same_as: str) -> None:
    ours, plain = one(line), one(same_as)
    assert fields(ours) == fields(plain)
    assert (ours.task_identifier, ours.identifier, ours.payload) == (
        plain.task_identifier,
        plain.identifier,
        plain.payload,
    )


@looped("line", ["@reboot a", "@daily", "@ a", "@every 5m a"])
def test_other_words_with_an_at_sign_are_refused(line: str) -> None:
    assert "could not process the line" in problem(line).message


@pytest.mark.parametrize("identifier", ["x", "x-y_1"])
def test_identifiers_that_are_allowed(identifier: str) -> None:
    item = one(f"* * * * * a ?id={identifier}")
    assert (item.task_identifier, item.identifier) == ("a", identifier)


@looped(
    ("phrase", "seconds"),
    [
        ("1d", DAY),
        ("1d2h", 93600),
        ("2h1d", 93600),
        ("1s", 1),
        ("0s", 0),
        ("1w", 604800),
        ("4w3d2h1m", 2685660),
    ],
)
def test_time_phrases(phrase: str, seconds: float) -> None:
    assert one(f"* * * * * a ?fill={phrase}").options.backfill_period == seconds


@looped(
    "options",
    [
        "id=1x",
        "id=x/y",
        "id=",
        "id=x{a:1}",
        "fill=30",
        "fill=1y",
        "fill=1.5h",
        "fill=",
        "max=-1",
        "max=x",
        "max",
        "queue=q/1",
        "queue=q%201",
        "queue=",
        "priority=+3",
        "priority=1.5",
        "jobKeyMode=unsafe_dedupe",
    ],
)
def test_option_values_that_are_refused(options: str) -> None:
    found = problem(f"* * * * * a ?{options}")
    assert "has value" in found.message
    assert "allowed" in found.message
    assert found.column == 14


@looped(
    "options",
    [
        "max=0",
        "max=32768",
        "priority=32768",
        "priority=-32769",
        "fill=999999999w",
        f"queue={'q' * 129}",
        f"jobKey={'k' * 513}",
        "jobKey=%00",
    ],
)
def test_values_that_the_database_would_refuse_are_refused_when_read(options: str) -> None:
    assert problem(f"* * * * * a ?{options}").column == 14


@pytest.mark.compat("A-12")
def test_max_0_is_refused_where_node_would_loop_at_every_run() -> None:
    assert "must be from 1 to 32767, got 0" in problem("* * * * * a ?max=0").message


def test_a_task_name_that_is_too_long_for_the_database_is_refused() -> None:
    assert "128" in problem(f"* * * * * {'a' * 129}").message


def test_whole_numbers_and_queues() -> None:
    assert one("* * * * * a ?max=5").options.max_attempts == 5
    assert one("* * * * * a ?priority=3").options.priority == 3
    assert one("* * * * * a ?priority=-3").options.priority == -3
    assert one("* * * * * a ?queue=q").options.queue_name == "q"
    assert one("* * * * * a ?queue=q:1-a_b").options.queue_name == "q:1-a_b"


@pytest.mark.parametrize("written", ["jobKey=a%20b", "jobKey=a+b", "job_key=a+b"])
def test_a_job_key_alone_means_replace(written: str) -> None:
    options = one(f"* * * * * a ?{written}").options
    assert (options.job_key, options.job_key_mode) == ("a b", "replace")


def test_an_empty_job_key_has_no_mode() -> None:
    options = one("* * * * * a ?jobKey=").options
    assert (options.job_key, options.job_key_mode) == ("", None)


def test_job_key_modes_in_both_spellings() -> None:
    assert one("* * * * * a ?jobKeyMode=replace").options.job_key_mode == "replace"
    for text in ("jobKey=k&jobKeyMode=preserve_run_at", "job_key=k&job_key_mode=preserve_run_at"):
        options = one(f"* * * * * a ?{text}").options
        assert (options.job_key, options.job_key_mode) == ("k", "preserve_run_at")


@pytest.mark.parametrize("options", ["id=x&id=y", "jobKey=a&job_key=b"])
def test_an_option_given_twice_is_refused(options: str) -> None:
    assert "is given twice" in problem(f"* * * * * a ?{options}").message


def test_empty_segments_of_the_options_are_ignored() -> None:
    item = one("* * * * * a ?id=x&&max=3")
    assert (item.identifier, item.options.max_attempts) == ("x", 3)


@looped("options", ["Id=x", "foo=1", "toString=1", "=x"])
def test_unknown_options_are_refused_with_the_known_ones(options: str) -> None:
    message = problem(f"* * * * * a ?{options}").message
    assert "unknown option" in message
    for name in ("id", "fill", "max", "queue", "jobKey", "jobKeyMode", "priority", "tz"):
        assert name in message


def test_a_time_zone_is_looked_up_and_a_wrong_one_gets_advice() -> None:
    assert str(one("0 4 * * * a ?tz=Europe/Berlin").options.tz) == "Europe/Berlin"
    assert "did you mean Europe/Berlin?" in problem("0 4 * * * a ?tz=Europe/Berln").message
    assert "unknown time zone" in problem("0 4 * * * a ?tz=../../etc/passwd").message


@looped(
    ("payload", "value"),
    [
        ("{}", {}),
        ("{a:1}", {"a": 1}),
        ('{"a":1}', {"a": 1}),
        ("{'a':'b',}", {"a": "b"}),
        ("{/*c*/a:1}", {"a": 1}),
        ("{a:0x1F,b:.5,c:+1}", {"a": 31, "b": 0.5, "c": 1}),
        ('{a:"# hash"}', {"a": "# hash"}),
        ("{_cron:1}", {"_cron": 1}),
    ],
)
def test_payloads_in_json5(payload: str, value: object) -> None:
    assert one(f"* * * * * a {payload}").payload == value
    assert one(f"* * * * * a ?id=x {payload}").payload == value


@looped(
    ("payload", "fault"),
    [
        ("{a:Infinity}", "inf at $.a is not a JSON number"),
        ("{a:[1,{b:-Infinity}]}", "-inf at $.a[1].b is not a JSON number"),
        ("{a:NaN}", "nan at $.a is not a JSON number"),
        ('{"a":1e999}', "inf at $.a is not a JSON number"),
        ('{"a":"x\\u0000y"}', "contains a NUL character at $.a"),
        ("{a:'x\\0y'}", "contains a NUL character at $.a"),
        ("{'x\\0y':1}", "contains a NUL character at a key of $"),
        ("{a:'\\ud800'}", "contains half a surrogate pair at $.a"),
    ],
)
def test_payloads_that_the_client_refuses_are_refused_here_too(payload: str, fault: str) -> None:
    found = problem(f"# first\n* * * * * a ?id=x {payload}")
    assert fault in found.message
    assert (found.line, found.column) == (2, 19)


@pytest.mark.parametrize("payload", ["{a:}", "{invalidJson=true}", "{a:" + "[" * 9999 + "]" * 9999 + "}"])
def test_payloads_that_are_not_json5_are_refused(payload: str) -> None:
    found = problem(f"# first\n* * * * * a {payload}")
    assert "the payload is not JSON5" in found.message
    assert (found.line, found.column) == (2, 13)


@pytest.mark.parametrize("text", ["* * * * * a\n* * * * * a", "* * * * * a\n* * * * * b ?id=a"])
def test_identifiers_must_be_unique(text: str) -> None:
    found = problem(text)
    assert "'a' is already used in line 1" in found.message
    assert found.line == 2


def test_an_identifier_makes_a_second_item_of_the_same_task_unique() -> None:
    assert [item.identifier for item in parse_crontab("* * * * * a ?id=z\n* * * * * a")] == ["z", "a"]


@pytest.mark.compat("CR10")
@looped("match", ["* * * * * ", " * * * * *", "foo", "", "* * * *", "60 * * * *"])
def test_items_in_code_with_a_bad_pattern_are_refused(match: str) -> None:
    with pytest.raises(CrontabError, match="item 1 of parse_cron_items"):
        parse_cron_items([CronItem("a", "* * * * *"), CronItem("b", match)])
