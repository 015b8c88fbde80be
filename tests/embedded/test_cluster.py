"""One process and its server: start, stop, address, settings, faults."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from embedded.asking import Embed, postmaster, query
from embedded.participant import FAST
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.database.embedded.folder import open_private
from graphile_worker.errors import EmbeddedPostgresError


def socket_folder(server: EmbeddedPostgres) -> Path:
    return Path(parse_qs(urlsplit(server.url()).query)["host"][0])


@pytest.mark.parametrize("version", ["18", "16"])
async def test_a_server_of_the_version_asked_for_keeps_its_data_over_a_restart(
    embed: Embed, version: str
) -> None:
    server = embed(version=version)
    assert not server.is_running
    async with server:
        assert server.is_running
        assert server.version.startswith(f"{version}.")
        assert str(await query(server.url(), "SHOW server_version")).startswith(server.version)
        await query(server.url(), "CREATE TABLE kept AS SELECT 42 AS answer")
    assert not server.is_running
    async with embed() as again:
        assert again.version == server.version
        assert await query(again.url(), "SELECT answer FROM kept") == 42


async def test_the_default_is_durable_utf8_and_closed_to_the_network(embed: Embed) -> None:
    with embed(settings={}) as server:
        assert await query(server.url(), "SHOW fsync") == "on"
        assert await query(server.url(), "SHOW synchronous_commit") == "on"
        assert await query(server.url(), "SHOW server_encoding") == "UTF8"
        assert await query(server.url(), "SHOW listen_addresses") == ""
        assert await query(server.url(), "SELECT upper('ä')") == "Ä"
        assert stat.S_IMODE(socket_folder(server).stat().st_mode) == 0o700
        assert stat.S_IMODE((server.data_dir / "connection.json").stat().st_mode) == 0o600
        assert stat.S_IMODE((server.data_dir / "cluster").stat().st_mode) == 0o700


async def test_settings_reach_the_server(embed: Embed) -> None:
    with embed(settings={**FAST, "application_name": 'it\'s "quoted"', "work_mem": "5MB"}) as server:
        assert await query(server.url(), "SHOW work_mem") == "5MB"
        assert (
            await query(server.url(), "SELECT reset_val FROM pg_settings WHERE name = 'work_mem'") == "5120"
        )


def test_settings_that_would_open_the_server_are_refused(folder: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="listen_addresses"):
        EmbeddedPostgres(folder / "data", settings={"Listen_Addresses": "*"})


def test_the_url_works_with_psql(embed: Embed) -> None:
    with embed() as server:
        command = [
            str(server.bin_dir / "psql"),
            "-XAtc",
            "SELECT current_database()",
            server.url("template1"),
        ]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "template1\n"


def test_the_url_of_a_stopped_server_is_an_error(embed: Embed) -> None:
    server = embed()
    with pytest.raises(EmbeddedPostgresError, match="start"):
        server.url()
    with server:
        pass
    with pytest.raises(EmbeddedPostgresError, match="start"):
        server.url()


async def test_a_port_opens_tcp_for_those_who_know_the_password(embed: Embed) -> None:
    with embed(port=0) as server:
        parts = urlsplit(server.url())
        assert parts.hostname == "127.0.0.1"
        assert await query(server.url(), "SELECT host(inet_client_addr())") == "127.0.0.1"
        assert await query(server.url(), "SHOW password_encryption") == "scram-sha-256"
        with pytest.raises(asyncpg.InvalidPasswordError):
            await query(f"postgresql://postgres:wrong@127.0.0.1:{parts.port}/postgres", "SELECT 1")


async def test_the_password_is_made_anew_when_its_file_is_lost(embed: Embed) -> None:
    with embed(port=0) as server:
        old = urlsplit(server.url()).password
    (server.data_dir / "connection.json").unlink()
    with embed(port=0) as again:
        assert urlsplit(again.url()).password != old
        assert await query(again.url(), "SELECT 1") == 1


def test_a_damaged_connection_file_is_named(embed: Embed) -> None:
    with embed() as server:
        pass
    file = server.data_dir / "connection.json"
    file.write_text("{")
    with pytest.raises(EmbeddedPostgresError, match=r"connection\.json is damaged"):
        embed().start()
    file.unlink()


def test_joining_with_another_port_is_refused_and_leaves_the_server_alone(embed: Embed) -> None:
    with embed() as first:
        with pytest.raises(EmbeddedPostgresError, match="without a TCP port"):
            embed(port=0).start()
        assert first.is_running
    assert not first.is_running


@pytest.mark.parametrize("name", ['a b\'s "data"', "dätä-数据", "a,b%c?d&e#f", "x" * 120])
async def test_any_data_path_works(embed: Embed, folder: Path, name: str) -> None:
    server = embed(folder / name / "data")
    async with server:
        directory = socket_folder(server)
        assert len(str(directory)) < 90
        assert await query(server.url(), "SELECT 1") == 1
        command = [str(server.bin_dir / "psql"), "-XAtc", "SELECT 2", server.url()]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "2\n"
    assert not directory.exists()


async def test_a_relative_data_path_means_the_folder_it_meant_at_first(
    embed: Embed, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with embed(Path("relative")) as server:
        monkeypatch.chdir("/")
        assert await query(server.url(), "SELECT 1") == 1
    assert (folder / "relative" / "cluster").is_dir()


def test_variables_for_other_servers_are_ignored(embed: Embed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGDATA": "/nowhere", "PGPORT": "1", "PGOPTIONS": "--bad", "LC_ALL": "no_NO"}.items():
        monkeypatch.setenv(name, value)
    with embed() as server:
        assert server.is_running


def test_a_failed_start_shows_the_end_of_the_log_and_leaves_nothing_behind(embed: Embed) -> None:
    with embed() as good:
        pass
    bad = embed(settings={"shared_buffers": "nonsense"})
    with pytest.raises(EmbeddedPostgresError, match='invalid value for parameter "shared_buffers"'):
        bad.start()
    assert not bad.is_running
    assert list((bad.data_dir / "sessions").iterdir()) == []
    with good:
        assert good.is_running


def test_a_failed_initdb_shows_its_output_and_leaves_no_half_made_cluster(embed: Embed, folder: Path) -> None:
    programs = folder / "bin"
    programs.mkdir()
    for name, text in {
        "postgres": "echo 'postgres (PostgreSQL) 18.1'",
        "initdb": "echo disk is full; exit 3",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    server = embed(bin_dir=programs)
    with pytest.raises(EmbeddedPostgresError, match=r"(?s)initdb in .* failed \(status 3\):\ndisk is full"):
        server.start()
    assert [path.name for path in server.data_dir.glob("cluster*")] == []


def test_what_an_interrupted_initdb_left_is_cleared_away(embed: Embed, folder: Path) -> None:
    half = folder / "data" / "cluster.new-abc"
    (half / "cluster").mkdir(parents=True)
    (half / "cluster" / "PG_VERSION").write_text("18\n")
    (half / "password").write_text("secret")
    with embed() as server:
        assert server.is_running
        assert not list(server.data_dir.glob("cluster.new-*"))


def test_data_of_another_version_is_refused_by_name(embed: Embed) -> None:
    with embed(version="16"):
        pass
    with pytest.raises(EmbeddedPostgresError, match=r"data of PostgreSQL 16, but version 18"):
        embed(version="18").start()


def test_starting_twice_and_stopping_twice_is_harmless(embed: Embed) -> None:
    server = embed()
    server.stop()
    server.start()
    process = postmaster(server.data_dir)
    server.start()
    assert postmaster(server.data_dir) == process
    server.stop()
    server.stop()
    assert not server.is_running


def test_two_objects_in_one_process_share_one_server(embed: Embed) -> None:
    first, second = embed(), embed()
    with first:
        with second:
            assert second.url() == first.url()
        assert first.is_running
    assert not first.is_running


async def test_a_client_that_is_still_connected_does_not_hold_up_the_stop(embed: Embed) -> None:
    server = embed()
    server.start()
    connection = await asyncpg.connect(server.url())
    await asyncio.to_thread(server.stop)
    assert not server.is_running
    connection.terminate()


async def test_cancelling_an_async_start_leaves_no_server(embed: Embed) -> None:
    server = embed()

    async def use() -> None:
        async with server:
            pytest.fail("the start was cancelled before this")

    task = asyncio.create_task(use())
    await asyncio.sleep(0)  # the start is under way in its thread
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not server.is_running
    assert list((server.data_dir / "sessions").iterdir()) == []


def test_a_data_folder_that_cannot_be_made_is_named(embed: Embed, folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(EmbeddedPostgresError, match=r"data folder .*file/data cannot be created"):
        embed(folder / "file" / "data").start()


def test_deleting_the_data_folder_of_a_running_server_ends_it_at_stop(embed: Embed, folder: Path) -> None:
    server = embed()
    server.start()
    process = postmaster(server.data_dir)
    subprocess.run(["rm", "-rf", server.data_dir], check=True)
    server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_lock_files_follow_no_link(folder: Path) -> None:
    """In a folder of others a planted link would let us make or lock any file."""
    (folder / "lock").symlink_to(folder / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        open_private(folder / "lock")
    assert not (folder / "elsewhere").exists()
