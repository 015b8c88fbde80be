"""`add_job` and `add_jobs` with arbitrary arguments: a documented error, or what was asked for is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.cases import fuzzed, tried
from fuzz.desk import Desk
from fuzz.population import KEYS, Population, look, settle
from fuzz.sql_specs import CHECK, MODE, NOT_JSONB, NOT_TEXT, RANGE, TWICE, Spec, is_good_time, specs
from fuzz.values import ANY_TEXT, names
from support.working import SCHEMA

ANY_KEY = st.none() | names(512) | st.sampled_from(KEYS)
ANY_MODE = st.none() | st.sampled_from(["replace", "preserve_run_at", "unsafe_dedupe"]) | ANY_TEXT
KNOWN_MODES = (None, "replace", "preserve_run_at", "unsafe_dedupe")

ADD_JOB = f"""
select id, run_at = coalesce($4::text::timestamptz, now()) as is_on_time
from {SCHEMA}.add_job(
  $1, $2::text::json, $3, $4::text::timestamptz, $5::text::integer, $6, $7::text::integer, $8::text[], $9
)
"""
ADD_JOBS = f"""
select id
from {SCHEMA}.add_jobs(array(
  select row(
    identifier, payload::json, queue_name, run_at::timestamptz, max_attempts::smallint, job_key,
    priority::smallint, flags::text[]
  )::{SCHEMA}.job_spec
  from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
    with ordinality as spec
    (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, place) order by place
), $9)
"""


@pytest.fixture(scope="module")
def population(desk: Desk) -> Population:
    return desk.run(settle(desk.connection))


def text_of(value: int | None) -> str | None:
    return None if value is None else str(value)


def check_stored(job: Any, spec: Spec, before: Any | None) -> None:
    """What every job that was added or replaced must have; `before` is the job that had the key."""
    assert job["identifier"] == spec.identifier
    assert job["queue_name"] == spec.queue_name
    assert job["key"] == spec.job_key
    assert job["priority"] == (spec.priority or 0)
    assert job["max_attempts"] == (25 if spec.max_attempts is None else spec.max_attempts)
    assert (job["attempts"], job["last_error"], job["locked_by"]) == (0, None, None)
    flags = None if job["flag_text"] is None else json.loads(job["flag_text"])
    assert flags == (dict.fromkeys(spec.flags, True) if spec.flags else None)
    given_text = "{}" if spec.payload is None else spec.payload
    if before is not None and before["is_available"] and spec.is_array and before["json"].startswith("["):
        assert json.loads(job["json"]) == json.loads(before["json"]) + json.loads(given_text)
    else:
        assert job["json"] == given_text


def check_key(job: Any, before: Any | None, after: Population) -> None:
    """A waiting job takes the new values in place; another one gives up the key, and a new job has it."""
    if before is None:
        assert job["revision"] == 0
    elif before["is_available"]:
        assert (job["id"], job["revision"]) == (before["id"], before["revision"] + 1)
    else:
        assert job["id"] != before["id"]
        left = after.jobs[before["id"]]
        changed = {"key": None, "attempts": before["max_attempts"], "updated_at": left["updated_at"]}
        assert dict(left) == dict(before) | changed


def check_others(population: Population, after: Population, before: list[Any]) -> None:
    """No other job was touched."""
    touched = {job["id"] for job in before}
    for job_id, job in population.jobs.items():
        assert job_id in touched or after.jobs[job_id] == job


@fuzzed(0.5)
@example(Spec(job_key="waiting array", payload='["\\u0000"]'), "replace")
@example(Spec(job_key="failed object", max_attempts=40000), "unsafe_dedupe")
@example(Spec(run_at="infinity", flags=["", "a", "a"]), None)
@given(specs(ANY_KEY), ANY_MODE)
def test_add_job_stores_what_was_asked_for_or_says_what_is_wrong(
    desk: Desk, population: Population, spec: Spec, mode: str | None
) -> None:
    tried["SQL functions"] += 1
    desk.run(_add_job(desk, population, spec, mode))


async def _add_job(desk: Desk, population: Population, spec: Spec, mode: str | None) -> None:
    must = spec.faults(is_good_time=await is_good_time(desk, spec.run_at))
    if mode is not None and "\0" in mode:
        must = {NOT_TEXT}
    elif spec.job_key is not None and mode not in KNOWN_MODES:
        must.add(MODE)
    before = population.by_key.get(spec.job_key or "")
    is_kept = before is not None and mode == "unsafe_dedupe"
    may: set[str] = set()
    if is_kept and must <= {RANGE, CHECK} and spec.has_good_names:
        must, may = set(), must  # the job stays as it is, so its numbers need not be looked at
    elif before is not None and before["is_available"] and spec.is_array:
        may = NOT_JSONB
    async with desk.undone() as connection:
        row, refusal = await desk.attempt(
            connection.fetchrow(
                ADD_JOB, spec.identifier, spec.payload, spec.queue_name, spec.run_at,
                text_of(spec.max_attempts), spec.job_key, text_of(spec.priority), spec.flags, mode,
            )
        )  # fmt: skip
        if row is None:
            assert refusal in must | may
            return
        assert not must, f"it was accepted, though it should be refused with {must}"
        after = await look(connection)
        check_others(population, after, [] if before is None else [before])
        job = after.jobs[row["id"]]
        if is_kept:
            assert before is not None
            changed = {"revision": before["revision"] + 1, "updated_at": job["updated_at"]}
            assert dict(job) == dict(before) | changed
            return
        check_stored(job, spec, before)
        check_key(job, before, after)
        if mode == "preserve_run_at" and before and before["is_available"] and before["attempts"] == 0:
            assert job["run_at"] == before["run_at"]
        else:
            assert row["is_on_time"]


@fuzzed(0.3)
@example([Spec(job_key="locked array"), Spec(job_key="waiting object"), Spec()], None)
@example([Spec(queue_name="q", flags=['a"b\\,{}']), Spec(payload="[]", priority=-32768)], True)
@given(st.lists(specs(ANY_KEY), max_size=4), st.none() | st.booleans())
def test_add_jobs_stores_every_spec_in_order_or_none_at_all(
    desk: Desk, population: Population, batch: list[Spec], preserve: bool | None
) -> None:
    tried["SQL functions"] += 1
    desk.run(_add_jobs(desk, population, batch, preserve))


async def _add_jobs(desk: Desk, population: Population, batch: list[Spec], preserve: bool | None) -> None:
    must: set[str] = set()
    for spec in batch:
        must |= spec.faults(is_good_time=await is_good_time(desk, spec.run_at))
    keys = [spec.job_key for spec in batch if spec.job_key is not None]
    if len(keys) > len(set(keys)):
        must.add(TWICE)
    owners = [population.by_key.get(spec.job_key or "") for spec in batch]
    may = (
        NOT_JSONB
        if any(spec.is_array and owner for spec, owner in zip(batch, owners, strict=True))
        else set()
    )
    async with desk.undone() as connection:
        rows, refusal = await desk.attempt(connection.fetch(ADD_JOBS, *_columns(batch), preserve))
        if rows is None:
            assert refusal in must | may
            return
        assert not must, f"they were accepted, though they should be refused with {must}"
        assert len(rows) == len(batch)
        after = await look(connection)
        check_others(population, after, [owner for owner in owners if owner])
        for row, spec, owner in zip(rows, batch, owners, strict=True):
            job = after.jobs[row["id"]]
            check_stored(job, spec, owner)
            check_key(job, owner, after)


def _columns(batch: list[Spec]) -> list[list[str | None]]:
    return [
        [spec.identifier for spec in batch],
        [spec.payload for spec in batch],
        [spec.queue_name for spec in batch],
        [spec.run_at for spec in batch],
        [text_of(spec.max_attempts) for spec in batch],
        [spec.job_key for spec in batch],
        [text_of(spec.priority) for spec in batch],
        [None if spec.flags is None else _array_literal(spec.flags) for spec in batch],
    ]


def _array_literal(values: list[str | None]) -> str:
    def quoted(value: str | None) -> str:
        if value is None:
            return "NULL"
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return "{" + ",".join(map(quoted, values)) + "}"
