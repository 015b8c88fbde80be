"""The client with arbitrary values: one of our own errors, or what was asked for is in the database."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta, timezone
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from fuzz.cases import fuzzed, tried
from fuzz.desk import Desk
from fuzz.population import look
from fuzz.python_values import ANYTHING, Name, Number
from fuzz.values import JSON_VALUES, SMALL_NUMBERS, names
from graphile_worker import Job, JobSpec, WorkerUtils, make_worker_utils
from graphile_worker.errors import InvalidArgumentError
from graphile_worker.values.payload import encode

T = TypeVar("T")
PRECISION = timedelta(milliseconds=1)  # instants are read as floats, which far from now are coarse
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=-12)), timezone(timedelta(hours=14, minutes=1))])
TIMES = st.one_of(
    st.datetimes(timezones=st.none() | ZONES),
    st.sampled_from([datetime.max, datetime.min]).flatmap(
        lambda moment: ZONES.map(lambda zone: moment.replace(tzinfo=zone))
    ),
    st.timedeltas(),
    st.timedeltas(timedelta(-1), timedelta(1)),
)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "queue_name": names(128) | ANYTHING,
    "run_at": TIMES | ANYTHING,
    "max_attempts": SMALL_NUMBERS | ANYTHING,
    "job_key": names(512) | st.just("key") | ANYTHING,
    "job_key_mode": st.sampled_from(["replace", "preserve_run_at", "unsafe_dedupe"]) | ANYTHING,
    "priority": SMALL_NUMBERS | ANYTHING,
    "flags": st.lists(st.text(max_size=5), max_size=3) | st.sets(st.text(max_size=3)) | ANYTHING,
}
SENSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "queue_name": st.sampled_from(["a", "b"]),
    "run_at": st.timedeltas(timedelta(-1), timedelta(1)) | st.datetimes(timezones=ZONES),
    "max_attempts": st.integers(1, 32767),
    "job_key": st.sampled_from(["key", "other", "né"]),
    "job_key_mode": st.sampled_from(["replace", "preserve_run_at"]),
    "priority": st.integers(-32768, 32767),
    "flags": st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=3),
}
IDENTIFIERS = names(128) | st.just("task") | ANYTHING
PAYLOADS = JSON_VALUES | ANYTHING


@pytest.fixture(scope="module")
def utils(desk: Desk) -> Iterator[WorkerUtils]:
    utils = desk.run(_opened(desk))
    yield utils
    desk.run(utils.release())


async def _opened(desk: Desk) -> WorkerUtils:
    return await make_worker_utils(connection_string=desk.url)


def check_job(job: Job, stored: Any, spec: JobSpec, *, is_new: bool) -> None:
    """The job that came back is the row, and the row is what the spec says."""
    assert job.task_identifier == stored["identifier"] == spec.task_identifier
    assert job.raw_payload == stored["json"]
    assert job.key == stored["key"] == spec.job_key
    assert stored["queue_name"] == spec.queue_name
    assert job.priority == stored["priority"] == (spec.priority or 0)
    assert job.max_attempts == stored["max_attempts"] == (spec.max_attempts or 25)
    assert job.flags == (dict.fromkeys(spec.flags, True) if spec.flags else None)
    run_at = stored["run_at"].replace(tzinfo=UTC)  # the driver gives infinity, its last instant, without one
    assert abs(job.run_at - run_at) < PRECISION
    if isinstance(spec.run_at, datetime):
        assert run_at == spec.run_at
    if is_new:
        assert job.raw_payload == encode(spec.payload)
        assert (job.attempts, job.revision) == (0, 0)


def check_json(value: Any, text: str) -> None:
    """Plain values come back as they were given."""
    if value is not None:
        assert json.loads(text) == value


@fuzzed(0.4)
@example("task", None, {"run_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))})
@example("task", None, {"run_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))})
@example("task", msgspec.Raw(b"not json"), {})
@example("task", msgspec.Raw(b'["\\ud800"]'), {"job_key": "key"})
@example(Name("task"), None, {"queue_name": Name("q"), "job_key": Name("k"), "priority": Number.ONE})
@given(IDENTIFIERS, PAYLOADS, st.fixed_dictionaries({}, optional=OPTIONS))
def test_add_job_adds_what_it_was_given_or_says_which_argument_is_wrong(
    desk: Desk, utils: WorkerUtils, identifier: Any, payload: Any, options: dict[str, Any]
) -> None:
    tried["client"] += 1

    async def case() -> None:
        async with desk.undone() as connection:
            job, refused = await attempt(utils.add_job(identifier, payload, connection=connection, **options))
            if job is None:
                assert refused in ("task_identifier", "payload", *OPTIONS)
                return
            spec = JobSpec(identifier, payload, **options)
            after = await look(connection)
            assert after.jobs.keys() == {job.id}
            check_job(job, after.jobs[job.id], spec, is_new=True)

    desk.run(case())


@fuzzed(0.2)
@given(JSON_VALUES)
def test_a_payload_of_plain_values_comes_back_as_it_was(desk: Desk, utils: WorkerUtils, payload: Any) -> None:
    tried["client"] += 1

    async def case() -> None:
        async with desk.undone() as connection:
            job, refused = await attempt(utils.add_job("task", payload, connection=connection))
            if job is None:
                assert (refused, "\\u0000" in json.dumps(payload)) == ("payload", True)
                return
            check_json(payload, job.raw_payload)
            check_json(payload, (await look(connection)).jobs[job.id]["json"])

    desk.run(case())


def specs(options: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[Any, Any, dict[str, Any]]]:
    return st.tuples(
        st.sampled_from(["task", "other"]),
        JSON_VALUES | st.lists(JSON_VALUES, max_size=2),
        st.fixed_dictionaries({}, optional=options),
    )


@fuzzed(0.3)
@example([("task", [1], {"job_key": "key"}), ("task", None, {"flags": ["\\", '"', ",", "{}", "null"]})])
@given(st.lists(specs(SENSIBLE), max_size=5))
def test_add_jobs_adds_all_in_order_or_none(
    desk: Desk, utils: WorkerUtils, batch: list[tuple[Any, Any, dict[str, Any]]]
) -> None:
    tried["client"] += 1

    async def case() -> None:
        async with desk.undone() as connection:
            given_specs = [JobSpec(name, payload, **options) for name, payload, options in batch]
            jobs, refused = await attempt(utils.add_jobs(given_specs, connection=connection))
            if jobs is None:
                assert re.fullmatch(r"specs\[\d\]\.(payload|job_key)", str(refused))
                assert not (await look(connection)).jobs
                return
            after = await look(connection)
            assert [job.id for job in jobs] == sorted(after.jobs, key=[job.id for job in jobs].index)
            for job, spec in zip(jobs, given_specs, strict=True):
                check_job(job, after.jobs[job.id], spec, is_new=True)

    desk.run(case())


@fuzzed(0.1)
@given(st.lists(ANYTHING, max_size=3) | ANYTHING)
def test_add_jobs_refuses_what_is_no_list_of_specs(desk: Desk, utils: WorkerUtils, batch: Any) -> None:
    tried["client"] += 1
    refuses(
        desk,
        lambda connection: utils.add_jobs(batch, connection=connection),
    )


IDS = st.lists(st.integers(1, 10) | st.integers() | ANYTHING, max_size=4) | ANYTHING


@fuzzed(0.2)
@given(
    st.sampled_from(["complete_jobs", "permanently_fail_jobs", "reschedule_jobs"]),
    IDS,
    ANYTHING | st.text(max_size=5),
    st.fixed_dictionaries(
        {},
        optional={
            "run_at": TIMES | ANYTHING,
            "priority": SMALL_NUMBERS | ANYTHING,
            "attempts": SMALL_NUMBERS | ANYTHING,
            "max_attempts": SMALL_NUMBERS | ANYTHING,
        },
    ),
)
def test_managing_jobs_does_it_or_says_which_argument_is_wrong(
    desk: Desk, utils: WorkerUtils, deed: str, ids: Any, reason: Any, changes: dict[str, Any]
) -> None:
    tried["client"] += 1

    def call(connection: Any) -> Coroutine[Any, Any, Any]:
        if deed == "complete_jobs":
            return utils.complete_jobs(ids, connection=connection)
        if deed == "permanently_fail_jobs":
            return utils.permanently_fail_jobs(ids, reason, connection=connection)
        return utils.reschedule_jobs(ids, **changes, connection=connection)

    refuses(desk, call)


@fuzzed(0.2)
@given(
    st.sampled_from(["remove_job", "force_unlock_workers", "cleanup", "jobs.get"]),
    ANYTHING | names(512) | st.lists(ANYTHING | st.sampled_from(["GC_JOB_QUEUES", "pool"]), max_size=3),
    ANYTHING | st.lists(ANYTHING | st.text(max_size=4), max_size=3),
)
def test_everything_else_does_it_or_says_which_argument_is_wrong(
    desk: Desk, utils: WorkerUtils, deed: str, argument: Any, keep: Any
) -> None:
    tried["client"] += 1

    def call(connection: Any) -> Coroutine[Any, Any, Any]:
        if deed == "cleanup":
            return utils.cleanup(argument, task_identifiers_to_keep=keep, connection=connection)
        return attrgetter(deed)(utils)(argument, connection=connection)

    refuses(desk, call)


async def attempt(work: Awaitable[T]) -> tuple[T | None, str | None]:
    """The result of a call, or the argument that it refused; any other error fails the test."""
    try:
        result = await work
    except InvalidArgumentError as error:
        event("refused")
        return None, error.argument
    event("done")
    return result, None


def refuses(desk: Desk, call: Callable[[Any], Awaitable[Any]]) -> None:
    """Call inside a transaction: it does it, or refuses an argument before the server has seen anything."""

    async def case() -> None:
        async with desk.undone() as connection:
            await attempt(call(connection))
            assert await connection.fetchval("select 1") == 1

    desk.run(case())
