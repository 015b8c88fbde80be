"""A payload that is added with a task object must fit the task; a large one is warned about."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from graphile_worker import CronItem, JobHelpers, JobSpec, parse_cron_items, run_once, task
from graphile_worker.client import WorkerUtils
from graphile_worker.database.statements import add
from graphile_worker.errors import CrontabError, InvalidArgumentError, InvalidPayloadError, PayloadError
from support.cases import looped


@dataclass
class Data:
    n: int
    name: str = "x"


class Packed(msgspec.Struct):
    n: int
    name: str = "x"


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    n: int


class Typed(TypedDict):
    n: int


class Model(pydantic.BaseModel):
    n: int


class Aliased(pydantic.BaseModel):
    user_id: int = pydantic.Field(alias="userId")


def task_for(annotation: Any) -> Any:
    async def typed(payload: Any) -> None:
        pass

    typed.__annotations__["payload"] = annotation
    return task(typed)


FITTING: list[tuple[Any, Any]] = [
    (Data, Data(1)),
    (Data, {"n": 1}),
    (Packed, Packed(1)),
    (Packed, Data(1)),  # of another type, but the same JSON
    (Typed, {"n": 1}),
    (Model, Model(n=1)),
    (Model, {"n": "1"}),  # pydantic reads it
    (Aliased, Aliased(userId=1)),
    (Data | None, None),
    (Data | None, Data(1)),
    (int | str, "a"),
    (list[Data], [Data(1), {"n": 2}]),
    (dict, {}),
    (dict[str, Any], {"a": object}),  # not encoded here
    (dict[str, int], {"a": 1}),
    (float, 1),
    (Any, {"n": "x"}),
    (object, [1]),
    (None, None),
    (None, {}),
]


@looped(("annotation", "payload"), FITTING)
def test_what_a_worker_can_decode_fits(annotation: Any, payload: Any) -> None:
    assert JobSpec(task_for(annotation), payload).payload is payload


MISFITS: list[tuple[Any, Any, str]] = [
    (Data, {"n": "x"}, "does not fit Data: Expected `int`, got `str` - at `$.n`"),
    (Data, None, "does not fit Data: Object missing required field `n`"),
    (Packed, {"n": "x"}, "does not fit Packed: Expected `int`, got `str` - at `$.n`"),
    (Packed, [1], "does not fit Packed: Expected `object`, got `array`"),
    (Typed, {}, "does not fit Typed: Object missing required field `n`"),
    (Model, {"n": "x"}, "does not fit Model: Input should be a valid integer"),
    (Model, Aliased(userId=1), "does not fit Model: Field required - at `$.n`"),
    (list[Packed], [{"n": 1}, {"n": "x"}], "Expected `int`, got `str` - at `$[1].n`"),
    (dict[str, int], {"a": "b"}, "Expected `int`, got `str` - at `$[...]`"),
    (int, True, "does not fit int: Expected `int`, got `bool`"),
    (None, {"a": 1}, "the task 'typed' takes no payload; give its function a parameter for it"),
]


@looped(("annotation", "payload", "message"), MISFITS)
def test_a_misfit_is_refused_with_its_path(annotation: Any, payload: Any, message: str) -> None:
    typed = task_for(annotation)
    for adding in (JobSpec, lambda typed, payload: typed.spec(payload)):
        with pytest.raises(InvalidPayloadError) as caught:
            adding(typed, payload)
        assert str(caught.value).startswith("payload: ")
        assert message in str(caught.value)
        assert "'typed'" in str(caught.value)
        assert isinstance(caught.value, PayloadError)
        assert isinstance(caught.value, InvalidArgumentError)


def test_functions_without_a_payload_parameter() -> None:
    async def alone() -> None: ...

    async def reads_the_job(helpers: JobHelpers) -> None: ...

    alone_task: Any = task(alone)
    reading: Any = task(reads_the_job)
    assert JobSpec(alone_task).payload is None
    assert JobSpec(alone_task, {}).payload == {}
    assert JobSpec(reading, {"a": 1}).payload == {"a": 1}
    with pytest.raises(InvalidPayloadError, match="the task 'alone' takes no payload"):
        JobSpec(alone_task, {"a": 1})


async def test_nothing_is_added_by_a_call_with_a_misfit(utils: WorkerUtils, connection: Any) -> None:
    typed = task_for(Packed)
    with pytest.raises(InvalidPayloadError):
        await utils.add_job(typed, {"n": "x"})
    with pytest.raises(InvalidPayloadError):
        await utils.add_jobs(JobSpec(typed, {"n": n}) for n in (1, "x"))
    assert await connection.fetchval("select count(*) from graphile_worker._private_jobs") == 0
    assert (await utils.add_job("typed", {"n": "x"})).payload == {"n": "x"}  # by name, nothing is known


async def test_a_model_with_aliases_reaches_its_task(utils: WorkerUtils, database_url: str) -> None:
    got: list[int] = []

    @task(max_attempts=1)
    async def aliased(payload: Aliased) -> None:
        got.append(payload.user_id)

    await utils.add_job(aliased, Aliased(userId=3))
    await run_once(task_list=[aliased], connection_string=database_url)
    assert got == [3]


@looped(
    ("annotation", "payload", "message"),
    [
        (Packed, {"n": "x"}, "Expected `int`, got `str` - at `$.n`"),
        (Packed, None, "missing required field `n`"),
        (Strict, {"n": 1}, "Object contains unknown field `_cron`"),
        (dict[str, int], {"n": 1}, "Expected `int`, got `object`"),
    ],
)
def test_a_recurring_job_must_fit_with_what_the_scheduler_adds(
    annotation: Any, payload: Any, message: str
) -> None:
    with pytest.raises(CrontabError) as caught:
        parse_cron_items([CronItem(task_for(annotation), "* * * * *", payload=payload)])
    assert "item 0 of parse_cron_items: payload: does not fit" in str(caught.value)
    assert message in str(caught.value)


def test_a_recurring_job_that_fits() -> None:
    @task
    async def alone() -> None: ...

    items = [
        CronItem(alone, "* * * * *"),
        CronItem(task_for(Packed), "* * * * *", payload=Packed(1), identifier="a"),
        CronItem(task_for(Any), "* * * * *", identifier="b"),
    ]
    assert len(parse_cron_items(items)) == 3


LARGE = {"text": "x" * 2_500_000}


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add, "_warned", set())


async def test_a_large_payload_is_warned_about_once_per_task(
    utils: WorkerUtils, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        await utils.add_job("fast path", LARGE)
        await utils.add_job("keyed", LARGE, job_key="k")
        await utils.add_jobs([JobSpec("small", {}), JobSpec("many", LARGE)])
    await utils.add_job("small", {"text": "x" * 900_000})
    said = [record for record in caplog.records if record.funcName == "warn_of_large_payload"]
    assert [record.levelno for record in said] == [logging.WARNING] * 3
    assert [record.args[0] for record in said] == ["fast path", "keyed", "many"]  # type: ignore[index]
    assert said[0].getMessage() == (
        "a job of task fast path was added with a payload of 2.5 MB, which the database copies at every "
        "attempt; store the data elsewhere and pass a reference (this warning appears once per task)"
    )
