"""Several real processes, one server: who starts it, who stops it, and what a kill -9 changes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from embedded.asking import Embed, Participate, keepers, postmaster, query
from graphile_worker.errors import EmbeddedPostgresError


async def test_the_first_starts_it_the_others_join_and_the_last_one_out_stops_it(
    participate: Participate, embed: Embed, folder: Path
) -> None:
    first, second, third = participate(), participate(), participate()
    url = first.ask("start")["url"]
    process = postmaster(folder / "data")
    assert second.ask("start")["url"] == url
    assert third.ask("start")["url"] == url
    assert first.ask("stop")["running"]
    assert third.ask("stop")["running"]
    assert postmaster(folder / "data") == process
    assert await query(url, "SELECT 1") == 1
    assert not second.ask("stop")["running"]
    assert not embed().is_running


def test_many_processes_that_start_at_once_get_one_server(participate: Participate, folder: Path) -> None:
    crowd = [participate() for _ in range(6)]
    for each in crowd:
        each.send("start")
    answers = [each.answer() for each in crowd]
    assert [answer.get("error") for answer in answers] == [None] * 6
    assert len({answer["url"] for answer in answers}) == 1
    log = (folder / "data" / "server.log").read_text()
    assert log.count("database system is ready to accept connections") == 1
    for each in crowd:
        each.send("stop")
    assert [each.answer()["running"] for each in crowd].count(False) >= 1
    assert crowd[0].ask("status") == {"running": False, "url": None, "uid": os.geteuid()}


def test_a_process_that_ends_without_stopping_leaves_no_server(
    participate: Participate, embed: Embed
) -> None:
    only = participate()
    assert only.ask("start")["running"]
    only.close()
    assert not embed().is_running


async def test_the_server_outlives_its_starter_while_another_process_uses_it(
    participate: Participate, embed: Embed
) -> None:
    starter, other = participate(), participate()
    url = starter.ask("start")["url"]
    other.ask("start")
    starter.kill()
    assert await query(url, "SELECT 1") == 1
    assert not other.ask("stop")["running"]


def test_a_server_whose_starter_and_keeper_were_killed_is_stopped_by_the_next_one_that_comes_and_goes(
    participate: Participate, embed: Embed, folder: Path
) -> None:
    starter = participate()
    starter.ask("start")
    process = postmaster(folder / "data")
    for keeper in keepers(starter.process.pid):
        os.kill(keeper, signal.SIGKILL)
    starter.kill()
    server = embed()
    assert server.is_running
    with server:
        assert postmaster(folder / "data") == process
    assert not server.is_running


def test_a_server_left_behind_can_be_stopped_without_using_it(participate: Participate, embed: Embed) -> None:
    starter, other = participate(), participate()
    starter.ask("start")
    other.ask("start")
    starter.kill()
    server = embed()
    assert not server.stop_if_unused()
    assert server.is_running
    other.kill()
    assert server.stop_if_unused()
    assert not server.is_running


async def test_a_killed_server_is_started_again_under_the_same_address_with_its_data(
    participate: Participate, embed: Embed, folder: Path
) -> None:
    starter = participate()
    url = starter.ask("start")["url"]
    await query(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    idle = await asyncpg.connect(url)
    os.kill(postmaster(folder / "data"), signal.SIGKILL)
    with embed() as server:
        assert server.url() == url
        assert await query(url, "SELECT answer FROM kept") == 42
        assert starter.ask("status")["running"]
    assert starter.ask("stop") == {"running": False, "url": None, "uid": os.geteuid()}
    idle.terminate()


async def test_a_killed_server_keeps_its_tcp_port_for_those_who_asked_for_one(embed: Embed) -> None:
    with embed(port=0) as asked:
        url = asked.url()
        os.kill(postmaster(asked.data_dir), signal.SIGKILL)
        with embed() as other:
            assert asked.url() == url
            assert await query(url, "SELECT 1") == 1
            assert "host=/" in other.url()
    with embed() as alone:
        assert await query(alone.url(), "SHOW listen_addresses") == ""


async def test_a_lost_connection_file_is_an_error_until_the_last_user_has_left(embed: Embed) -> None:
    with embed() as server:
        (server.data_dir / "connection.json").unlink()
        with pytest.raises(EmbeddedPostgresError, match=r"connection\.json was deleted while"):
            embed().start()
        process = postmaster(server.data_dir)
    with embed() as again:
        assert postmaster(again.data_dir) != process
        assert await query(again.url(), "SELECT 1") == 1


async def test_its_own_starter_brings_a_killed_server_back(embed: Embed) -> None:
    with embed() as server:
        os.kill(postmaster(server.data_dir), signal.SIGKILL)
        server.start()
        assert await query(server.url(), "SELECT 1") == 1
    assert not server.is_running


def test_stopping_after_the_server_was_killed_is_no_error(embed: Embed) -> None:
    with embed() as server:
        os.kill(postmaster(server.data_dir), signal.SIGKILL)
    assert not server.is_running


@pytest.mark.parametrize("number", ["own", "dead", "nonsense"])
def test_a_stale_pid_file_is_no_obstacle(embed: Embed, number: str) -> None:
    with embed() as server:
        pass
    gone = subprocess.Popen(["true"])
    gone.wait()
    text = {"own": str(os.getpid()), "dead": str(gone.pid), "nonsense": "no number"}[number]
    stale = server.data_dir / "cluster" / "postmaster.pid"
    stale.write_text(f"{text}\n{server.data_dir}/cluster\n1\n5432\n/tmp\n\n 1 1\nready\n")
    with server:
        assert server.is_running


def test_a_killed_starter_in_the_middle_of_its_start_is_no_obstacle(
    participate: Participate, embed: Embed, folder: Path
) -> None:
    starter = participate()
    starter.send("start")
    lock = folder / "data" / "lock"
    while not lock.exists():
        assert starter.process.poll() is None
    starter.kill()
    with embed() as server:
        assert server.is_running
    assert not server.is_running


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="a server's folder is known on Linux only")
def test_a_server_that_someone_else_started_on_the_folder_is_left_alone(embed: Embed, folder: Path) -> None:
    with embed() as server:
        pass
    cluster = server.data_dir / "cluster"
    owner = cluster.stat()
    account: Any = {"user": owner.st_uid, "group": owner.st_gid} if os.geteuid() == 0 else {}
    other = subprocess.Popen(
        [str(server.bin_dir / "postgres"), "-D", str(cluster), "-k", str(cluster), "-h", ""],
        cwd="/",
        stderr=subprocess.PIPE,
        text=True,
        **account,
    )
    try:
        assert other.stderr is not None
        while "ready to accept" not in (line := other.stderr.readline()):
            assert line, "the server did not start"
        with pytest.raises(EmbeddedPostgresError, match=rf"started by other means \(process {other.pid}\)"):
            server.start()
        assert other.poll() is None
    finally:
        other.send_signal(signal.SIGINT)
        other.wait(timeout=60)
        if other.stderr is not None:
            other.stderr.close()


def test_a_forked_child_that_ends_does_not_stop_its_parents_server(embed: Embed) -> None:
    with embed() as server:
        child = os.fork()
        if child == 0:
            server.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert server.is_running
    assert not server.is_running


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(embed: Embed) -> None:
    with embed() as server:
        assert os.getpgid(postmaster(server.data_dir)) != os.getpgrp()
