"""Errors of the database that the user can act on, met for real."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils, make_worker_utils
from graphile_worker.database.connections.errors import translated_error
from graphile_worker.database.connections.open import _keep_alive, connect, open_pool
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.errors import ConnectionConfigError, ConnectionFailedError, PermissionDeniedError
from support.server import chosen_programs


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A closed port of this machine, reserved for the test."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        yield listener.getsockname()[1]


def messages(error: BaseException | None) -> str:
    """All that the error and its causes say."""
    return "" if error is None else f"{error!r} {error} {messages(error.__cause__ or error.__context__)}"


@pytest.mark.parametrize("open_it", [connect, open_pool])
async def test_an_unreachable_server_is_named_with_host_and_port(closed_port: int, open_it: Any) -> None:
    with pytest.raises(ConnectionFailedError) as caught:
        await open_it(f"postgres://user:secret@127.0.0.1:{closed_port}/db")
    assert f"127.0.0.1:{closed_port} cannot be reached" in str(caught.value)
    assert "is it running" in str(caught.value)
    assert "secret" not in messages(caught.value)


async def test_a_client_finds_out_when_it_is_opened(closed_port: int) -> None:
    with pytest.raises(ConnectionFailedError, match=f"127.0.0.1:{closed_port} cannot be reached"):
        async with make_worker_utils(connection_string=f"postgres://127.0.0.1:{closed_port}/db"):
            pytest.fail("it opened")


async def test_a_missing_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailedError, match=re.escape(f"socket {tmp_path}/.s.PGSQL.5432")):
        await connect(f"postgres:///db?host={tmp_path}")


async def test_a_server_that_never_answers_times_out(silent_port: int) -> None:
    url = f"postgres://127.0.0.1:{silent_port}/db?connect_timeout=0.2&sslmode=disable"
    with pytest.raises(ConnectionFailedError, match=f"127.0.0.1:{silent_port} did not answer in time"):
        await connect(url)


async def test_a_missing_database_says_how_to_make_it(server: Any) -> None:
    with pytest.raises(ConnectionFailedError, match=r"has no such database.*createdb") as caught:
        await make_worker_utils(connection_string=server.url("nobody made this"))
    assert caught.value.sqlstate == "3D000"


@pytest.fixture(scope="module")
def guarded_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server of its own that asks the role `guarded` for a password; yields a maker of URLs."""
    folder = tmp_path_factory.mktemp("guarded")
    with EmbeddedPostgres(folder / "data", **chosen_programs()) as server:

        async def prepare() -> None:
            connection = await asyncpg.connect(server.url())
            await connection.execute("create role guarded login password 'right'")
            rules = await connection.fetchval("show hba_file")  # the server's own view of the path
            await connection.execute(
                f"copy (values ('local all guarded scram-sha-256'), ('local all all trust')) to '{rules}'"
            )
            await connection.execute("create role crowded login connection limit 0")
            await connection.execute("select pg_reload_conf()")
            await connection.close()

        asyncio.run(prepare())

        def url(user: str, password: str = "") -> str:
            login = quote(user) + (":" + quote(password) if password else "")
            return re.sub(r"://[^/]*@", f"://{login}@", server.url())

        yield url


async def test_a_wrong_password_is_said_and_never_shown(guarded_socket: Any) -> None:
    with pytest.raises(
        ConnectionFailedError, match=r"refused the login.*check the user and the password"
    ) as caught:
        await make_worker_utils(connection_string=guarded_socket("guarded", "wr0ng-secret"))
    assert caught.value.sqlstate == "28P01"
    assert "wr0ng-secret" not in messages(caught.value)

    async with make_worker_utils(connection_string=guarded_socket("guarded", "right")) as utils:
        assert utils.pool.get_size() == 1


async def test_too_many_connections_says_what_to_change(guarded_socket: Any) -> None:
    with pytest.raises(ConnectionFailedError, match=r"no connection left.*lower max_pool_size") as caught:
        await connect(guarded_socket("crowded"))
    assert caught.value.sqlstate == "53300"


async def test_a_role_without_rights_is_told_so(utils: WorkerUtils, connection: Any) -> None:
    await connection.execute("create role powerless_of_this_test")
    try:
        await connection.execute("set role powerless_of_this_test")
        with pytest.raises(
            PermissionDeniedError, match='use the role that owns the tables of the schema "gra'
        ):
            await utils.add_job("job1", connection=connection)
    finally:
        await connection.execute("reset role")
        await connection.execute("drop role powerless_of_this_test")


async def test_other_errors_pass_unchanged(utils: WorkerUtils, connection: Any) -> None:
    async with connection.transaction(readonly=True):
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await utils.add_job("job1", connection=connection)


def test_a_host_name_that_nobody_knows_is_said() -> None:
    error = translated_error(socket.gaierror(-2, "Name or service not known"), target="nowhere:5432")
    assert str(error) == (
        "the database server at nowhere:5432 cannot be found: Name or service not known; "
        "is the host name right?"
    )


@pytest.mark.parametrize("url", ["postgres://user:secret@host:notaport/db", "postgres://h/d?sslmode=secret"])
async def test_a_string_that_the_driver_refuses_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConnectionConfigError, match="connection_string: ") as caught:
        await connect(url)
    assert "secret" not in str(caught.value)


@pytest.fixture
async def utils(database_url: str) -> Any:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def test_connections_over_tcp_are_kept_alive() -> None:
    with socket.socket() as endpoint:

        class Transport:
            def get_extra_info(self, name: str) -> socket.socket:
                return endpoint

        class Connected:
            _transport = Transport()

        await _keep_alive(Connected(), {"keepalives_idle": 77})
        assert endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77
            assert endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 10
