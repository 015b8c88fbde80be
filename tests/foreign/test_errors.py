"""Errors through other libraries: ours where there is advice, else the library's own. Nothing is retried."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import asyncpg
import msgspec
import psycopg
import psycopg2
import pytest
import sqlalchemy.exc

from foreign.places import EACH_ADAPTER, PLACES, Place
from graphile_worker import JobSpec
from graphile_worker.database.connections.errors import sqlstate_of
from graphile_worker.errors import (
    ConnectionFailedError,
    InvalidArgumentError,
    JobNotAddedError,
    PermissionDeniedError,
    SchemaMissingError,
)

PLACE_NAMES = EACH_ADAPTER
FAILING = """
create sequence attempts_of_errors;
create function fail_of_errors() returns trigger language plpgsql as $$
begin
    perform nextval('attempts_of_errors');
    raise exception 'in your trigger' using errcode = tg_argv[0];
end;
$$;
"""
LIBRARIES = (psycopg.Error, psycopg2.Error, sqlalchemy.exc.DBAPIError)


def expected(place: Place) -> type[BaseException]:
    """The base of the library's own errors."""
    package = type(place.given).__module__.partition(".")[0]
    if package == "asyncpg":
        return asyncpg.PostgresError
    if package == "psycopg":
        return psycopg.Error
    return psycopg2.Error if package == "psycopg2" else sqlalchemy.exc.DBAPIError


async def test_a_missing_schema_is_explained_without_statement_and_values(place: Place) -> None:
    with pytest.raises(SchemaMissingError, match=r"utils\.migrate") as caught:
        await place.do(place.utils("not_there").add_job("hello", {"secret": "s3cret"}))
    assert "s3cret" not in str(caught.value)
    assert "[SQL" not in str(caught.value)
    assert "LINE 1" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, expected(place))
    assert caught.value.sqlstate == "3F000"


async def test_a_payload_that_is_no_json_is_explained(place: Place) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot use it as JSON") as caught:
        await place.do(place.utils().add_job("hello", msgspec.Raw(b"{secret}")))
    assert "[SQL" not in str(caught.value)
    assert str(caught.value).endswith(
        'invalid input syntax for type json\nDETAIL:  Token "secret" is invalid.'
    )


async def test_a_missing_right_is_explained(place: Place, observer: Any) -> None:
    await observer.execute("drop role if exists powerless_of_foreign")
    await observer.execute("create role powerless_of_foreign")
    try:
        await place.execute("set local role powerless_of_foreign")
        with pytest.raises(PermissionDeniedError, match="may not do this: permission denied"):
            await place.do(place.utils().add_job("hello"))
        await place.rollback()
    finally:
        await observer.execute("drop role powerless_of_foreign")


@pytest.mark.parametrize("code", ["40001", "GWNOR", "23505"])
async def test_after_an_error_nothing_is_retried(place: Place, observer: Any, code: str) -> None:
    await observer.execute(FAILING)
    await observer.execute(
        "create trigger failing before insert on graphile_worker._private_jobs "
        f"for each row execute function fail_of_errors('{code}')"
    )
    try:
        with pytest.raises((expected(place), JobNotAddedError)) as caught:
            await place.do(place.utils().add_job("hello"))
        await place.rollback()
        assert sqlstate_of(caught.value) == code
        assert isinstance(caught.value, JobNotAddedError) is (code == "GWNOR")
        if code != "GWNOR":
            assert "in your trigger" in str(caught.value)
        assert await observer.fetchval("select last_value from attempts_of_errors") == 1
    finally:
        await observer.execute(
            "drop trigger failing on graphile_worker._private_jobs; drop function fail_of_errors; "
            "drop sequence attempts_of_errors"
        )


async def test_in_a_failed_transaction_the_librarys_error_comes_out(place: Place) -> None:
    with pytest.raises(expected(place)):
        await place.execute("select 1/0")
    with pytest.raises(expected(place)) as caught:
        await place.do(place.utils().add_job("hello"))
    assert sqlstate_of(caught.value) == "25P02"
    with pytest.raises(expected(place)) as caught:
        await place.do(place.utils().add_jobs([JobSpec("hello", job_key="k")]))
    assert sqlstate_of(caught.value) == "25P02"
    await place.rollback()


@pytest.mark.parametrize("name", EACH_ADAPTER[1:])
async def test_a_connection_that_the_server_closed_fails_as_in_the_library(
    name: str, shared_url: str, observer: Any
) -> None:
    checked = []
    with suppress(*LIBRARIES):  # to close a lost connection is an error in some
        async with PLACES[name](shared_url) as place:
            utils = place.utils()
            await place.do(utils.add_job("hello"))
            pid = await observer.fetchval(
                "select pid from pg_stat_activity where datname = current_database() "
                "and state = 'idle in transaction'"
            )
            await observer.execute("select pg_terminate_backend($1, 60000)", pid)
            # asyncpg may be in the middle of the server's last message; that error is ours.
            with pytest.raises((expected(place), ConnectionFailedError)):
                await place.do(utils.add_jobs([JobSpec("hello", job_key="k")]))
            checked.append(name)
    assert checked
