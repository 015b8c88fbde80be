"""`_trace` in payloads: tasks never see it, whatever their payload type, and nothing else depends on it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel

from graphile_worker import JobHelpers, JobSpec, Unique, run_once, task
from graphile_worker.errors import InvalidPayloadError
from graphile_worker.values.outcome import FailedJob
from graphile_worker.values.payload import traces_in, with_trace, without_trace
from support.working import Jobs

# As the Rust port writes it.
TRACE = {"flags": 1, "trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}
OTHER = {**TRACE, "span_id": "00f067aa0ba902b7", "tracestate": "a=b"}


def text(value: object) -> str:
    return json.dumps(value)


@pytest.mark.parametrize(
    ("payload", "seen"),
    [
        ('{"_trace": %s, "a": 1.50}', '{"a":1.50}'),
        ('{"a":{"_trace":1},"_trace":%s}', '{"a":{"_trace":1}}'),
        (' { "_trace":%s } ', "{}"),
        ('[{"_trace":%s,"a":1},2,{"a":"_trace"},[{"_trace":%s}]]',
         '[{"a":1},2,{"a":"_trace"},[{"_trace":%s}]]'),
        ('{"a":{"_trace":%s}}', None),
        ('{"_trace":"mine"}', None),
        ('{"_trace":{"id":1}}', None),
        ('"\\"_trace\\""', None),
        ('{"_trace":', None),
    ],
)  # fmt: skip
def test_only_what_tracing_wrote_is_cut_out(payload: str, seen: str | None) -> None:
    raw = payload.replace("%s", text(TRACE))
    wanted = raw if seen is None else seen.replace("%s", text(TRACE))
    assert without_trace(raw) == wanted


def test_the_member_is_written_into_objects_that_have_none() -> None:
    raw = text(TRACE)
    assert with_trace("{}", raw) == f'{{"_trace":{raw}}}'
    assert with_trace('{"a":1.50}', raw) == f'{{"_trace":{raw},"a":1.50}}'
    nested = with_trace('{"a":{"_trace":1}}', raw)
    assert json.loads(nested) == {"_trace": TRACE, "a": {"_trace": 1}}
    kept = f'{{"_trace":{text(OTHER)}}}'
    assert with_trace(kept, raw) == kept
    mixed = with_trace(f'[{{"a":1}},2,{kept},"x"]', raw)
    assert json.loads(mixed) == [{"_trace": TRACE, "a": 1}, 2, {"_trace": OTHER}, "x"]
    assert [with_trace(each, raw) for each in ('"{"', "1", "null", "[]")] == ['"{"', "1", "null", "[]"]


def test_the_contexts_of_a_batch_are_found_without_repetitions() -> None:
    items = [{"_trace": TRACE}, {"_trace": OTHER}, {"_trace": TRACE}, {"_trace": {"trace_id": 1}}, 2]
    assert traces_in(text(items)) == [TRACE, OTHER]
    assert traces_in(text({"_trace": OTHER})) == [OTHER]
    assert traces_in('{"a": "_trace"}') == traces_in('{"_trace":') == traces_in('"\\"_trace\\""') == []


@dataclass
class Plain:
    a: int


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: int


class Model(BaseModel, extra="forbid"):
    a: int


class Typed(TypedDict):
    a: int


async def test_no_task_sees_it_whatever_its_payload_type(database_url: str, jobs: Jobs) -> None:
    seen: dict[str, Any] = {}

    @task
    async def plain(payload: Plain) -> None:
        seen["plain"] = payload.a

    @task
    def strict(payload: Strict) -> None:
        seen["strict"] = payload.a

    @task
    async def model(payload: Model) -> None:
        seen["model"] = payload.a

    @task
    async def typed(payload: Typed) -> None:
        seen["typed"] = payload

    @task
    async def anything(payload: Any, helpers: JobHelpers) -> None:
        seen["anything"] = payload
        seen["of the job"] = helpers.job.payload

    @task
    async def nothing() -> None:
        seen["nothing"] = True

    @task
    async def optional(payload: Strict | None) -> None:
        seen["optional"] = payload

    @task
    async def batch(payload: list[Strict]) -> list[Any]:
        seen.setdefault("batch", []).append([item.a for item in payload])
        return [ValueError("odd") if item.a % 2 and len(seen["batch"]) == 1 else None for item in payload]

    tasks: list[Any] = [plain, strict, model, typed, anything, nothing, optional, batch]
    for each in (plain, strict, model, typed, anything):
        await jobs.add(each.identifier, {"_trace": TRACE, "a": 1})
    await jobs.add("nothing", {"_trace": TRACE})
    await jobs.add("optional", {"_trace": TRACE})
    await jobs.add("batch", [{"_trace": TRACE, "a": 1}, {"a": 2, "_trace": OTHER}])
    await run_once(connection_string=database_url, task_list=tasks)
    row = await jobs.one()
    assert json.loads(row["payload"]) == [{"_trace": TRACE, "a": 1}]  # the item that is retried keeps it
    await jobs.make_due()
    await run_once(connection_string=database_url, task_list=tasks)
    assert seen == {
        "plain": 1, "strict": 1, "model": 1, "typed": {"a": 1}, "anything": {"a": 1}, "nothing": True,
        "of the job": {"_trace": TRACE, "a": 1}, "optional": None, "batch": [[1, 2], [1]],
    }  # fmt: skip
    # A payload that already carries it is accepted by the check of an add.
    for each, payload in ((strict, {"_trace": TRACE, "a": 1}), (nothing, {"_trace": TRACE})):
        each.check_payload(payload)
    with pytest.raises(InvalidPayloadError, match="takes no payload"):
        nothing.check_payload({"_trace": TRACE, "a": 1})
    assert strict.as_received({"_trace": TRACE, "a": 1}) == Strict(1)


async def test_merged_arrays_keep_the_context_of_each_item(jobs: Jobs) -> None:
    await jobs.add("batch", [{"_trace": TRACE, "a": 1}], key="k")
    await jobs.add("batch", [{"_trace": OTHER, "a": 2}, {"a": 3}], key="k")
    raw = (await jobs.one())["payload"]
    assert traces_in(raw) == [TRACE, OTHER]
    assert json.loads(without_trace(raw)) == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_the_key_of_a_unique_job_does_not_depend_on_it() -> None:
    def key(payload: Any) -> str | None:
        return JobSpec("t", payload, unique=Unique()).job_key

    assert key({"_trace": TRACE, "a": 1}) == key({"a": 1, "_trace": OTHER}) == key({"a": 1})
    assert key([{"_trace": TRACE, "a": 1}]) == key([{"a": 1}]) != key([{"a": 2}])


async def test_a_failure_handler_gets_the_payload_without_it_and_its_job_the_context(
    database_url: str, jobs: Jobs
) -> None:
    @task(max_attempts=1, on_failure="report")
    async def fails(payload: Any) -> None:
        raise ValueError("no")

    reported: list[Any] = []

    async def report(payload: FailedJob) -> None:
        reported.append(payload.payload)

    await jobs.add("fails", {"_trace": TRACE, "a": 1}, max_attempts=1)
    await jobs.add("fails", {"a": 2}, max_attempts=1)
    await run_once(connection_string=database_url, task_list=[fails])
    rows = [row for row in await jobs.all() if row["identifier"] == "report"]
    assert sorted((traces_in(row["payload"]) for row in rows), key=len) == [[], [TRACE]]
    await run_once(connection_string=database_url, task_list={"report": report})
    assert sorted(reported, key=str) == [{"a": 1}, {"a": 2}]
