"""JobSpec refuses what the database would refuse, and says which argument and which limit."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, Unpack

import pytest

from graphile_worker.errors import GraphileWorkerError, InvalidArgumentError
from graphile_worker.values.spec import JobOptions, JobSpec


def test_a_spec_takes_identifier_and_payload_by_position() -> None:
    spec = JobSpec("send_email", {"to": "a@example.com"}, job_key="welcome:1")
    assert (spec.task_identifier, spec.payload, spec.job_key) == (
        "send_email",
        {"to": "a@example.com"},
        "welcome:1",
    )
    with pytest.raises(TypeError):
        JobSpec("a", {}, "queue")  # type: ignore[call-overload]


def test_a_spec_cannot_be_changed_but_copied_with_changes() -> None:
    spec = JobSpec("a", 1, priority=3)
    with pytest.raises(AttributeError):
        spec.priority = 4  # type: ignore[misc]
    assert spec.replace(priority=4) == JobSpec("a", 1, priority=4)
    with pytest.raises(InvalidArgumentError, match="priority"):
        spec.replace(priority=99999)


@pytest.mark.parametrize(
    "options",
    [
        {"queue_name": "q" * 128, "job_key": "k" * 512},
        {"queue_name": "ß" * 128, "job_key": "漢" * 512},
        {"max_attempts": 1, "priority": -32768},
        {"max_attempts": 32767, "priority": 32767},
        {"priority": 0, "flags": []},
        {"run_at": datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))},
        {"run_at": timedelta(0)},
        {"run_at": timedelta(days=-400)},
        {"flags": ("a", "")},
        {"flags": {"a", "b"}},
        {"job_key": "k", "job_key_mode": "replace"},
        {"job_key": "k", "job_key_mode": "preserve_run_at"},
        {"job_key": "k", "job_key_mode": "unsafe_dedupe"},
        dict.fromkeys(JobSpec.__struct_fields__[2:]),
    ],
)
def test_values_up_to_the_limits_are_taken(options: dict[str, Any]) -> None:
    spec = JobSpec("i" * 128, **options)
    assert {name: getattr(spec, name) for name in options} == options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task_identifier": ""}, "task_identifier: must not be empty (1 to 128 characters)"),
        ({"task_identifier": "i" * 129}, "task_identifier: has 129 characters; at most 128 are allowed"),
        ({"task_identifier": "a\0b"}, "task_identifier: contains a NUL byte, which PostgreSQL cannot store"),
        ({"task_identifier": "a\ud800"}, "task_identifier: contains half a surrogate pair at position 1"),
        ({"task_identifier": None}, "task_identifier: expected a task or its identifier, got None"),
        ({"task_identifier": 5}, "task_identifier: expected a task or its identifier, got 5"),
        ({"queue_name": ""}, "queue_name: must not be empty (1 to 128 characters)"),
        ({"queue_name": "q" * 129}, "queue_name: has 129 characters; at most 128 are allowed"),
        ({"queue_name": "a\0"}, "queue_name: contains a NUL byte"),
        ({"queue_name": 7}, "queue_name: expected text, got 7"),
        ({"job_key": ""}, "job_key: must not be empty (1 to 512 characters)"),
        ({"job_key": "k" * 513}, "job_key: has 513 characters; at most 512 are allowed"),
        ({"job_key": "\0"}, "job_key: contains a NUL byte"),
        (
            {"job_key_mode": "merge"},
            "job_key_mode: expected one of replace, preserve_run_at, unsafe_dedupe; got 'merge'",
        ),
        ({"max_attempts": 0}, "max_attempts: must be from 1 to 32767, got 0"),
        ({"max_attempts": -1}, "max_attempts: must be from 1 to 32767, got -1"),
        ({"max_attempts": 32768}, "max_attempts: must be from 1 to 32767, got 32768"),
        ({"max_attempts": 2.5}, "max_attempts: expected a whole number, got 2.5"),
        ({"max_attempts": True}, "max_attempts: expected a whole number, got True"),
        ({"priority": 32768}, "priority: must be from -32768 to 32767, got 32768"),
        ({"priority": -32769}, "priority: must be from -32768 to 32767, got -32769"),
        ({"priority": "1"}, "priority: expected a whole number, got '1'"),
        (
            {"run_at": datetime(2030, 1, 2)},
            "run_at: datetime.datetime(2030, 1, 2, 0, 0) has no time zone; give it one, as in "
            "datetime.now(UTC), or give a timedelta from now",
        ),
        (
            {"run_at": "tomorrow"},
            "run_at: expected a datetime with a time zone or a timedelta, got 'tomorrow'",
        ),
        ({"run_at": timedelta(days=3_000_000)}, "run_at: at most 2900000 days from now"),
        ({"flags": "urgent"}, "flags: expected a list of names, got 'urgent'"),
        ({"flags": {"a": True}}, "flags: expected a list of names, got {'a': True}"),
        ({"flags": ["a", 5]}, "flags: every flag must be text, got 5"),
        ({"flags": ["a", None]}, "flags: every flag must be text, got None"),
        ({"flags": ["a\0"]}, "flags: contains a NUL byte"),
    ],
)
def test_values_beyond_the_limits_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        JobSpec(**({"task_identifier": "job1"} | options))
    assert str(caught.value).startswith(message)
    assert caught.value.argument == message.split(":")[0]
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, GraphileWorkerError)


def test_a_function_that_is_not_a_task_gets_a_hint() -> None:
    async def send() -> None: ...

    with pytest.raises(InvalidArgumentError, match=r"got <function .*send.*; is it decorated with @task\?"):
        JobSpec(send)  # type: ignore[call-overload]


class ATask:
    identifier = "from/task"
    spec_defaults = {"queue_name": "q", "max_attempts": 3, "priority": 0, "flags": ["f"]}  # noqa: RUF012

    def spec(self, payload: int, /, **options: Unpack[JobOptions]) -> JobSpec:
        return JobSpec(self, payload, **options)

    def decode_result(self, raw: str, /) -> None: ...


def test_a_task_gives_its_options_where_none_are_given() -> None:
    spec = JobSpec(ATask(), 5, max_attempts=9)
    assert spec == JobSpec("from/task", 5, queue_name="q", max_attempts=9, priority=0, flags=["f"])
    assert type(spec.task_identifier) is str


def test_the_options_of_a_task_are_checked_too() -> None:
    task = ATask()
    task.spec_defaults = {"queue_name": "q" * 200}
    with pytest.raises(InvalidArgumentError, match="queue_name: has 200 characters"):
        JobSpec(task, 1)


def test_names_that_are_a_kind_of_text_become_plain_text() -> None:
    from enum import StrEnum

    class Name(StrEnum):
        SEND = "send"

    assert type(JobSpec(Name.SEND).task_identifier) is str
    assert JobSpec(Name.SEND) == JobSpec("send")
