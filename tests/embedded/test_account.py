"""Root and ordinary users: who runs the server, and how it gets to where it may not walk."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

import pytest

from embedded.asking import Embed, Participate, postmaster, query
from graphile_worker.database.embedded.account import Account, choose_account
from graphile_worker.database.embedded.binaries import find_binaries, inspect
from graphile_worker.errors import EmbeddedPostgresError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
NOBODY = pwd.getpwnam("nobody")


def nobody() -> Account:
    return Account(name="nobody", uid=NOBODY.pw_uid, gid=NOBODY.pw_gid, switched=True)


@pytest.fixture
def open_folder(folder: Path) -> Path:
    """A folder that belongs to nobody."""
    path = folder / "nobody"
    path.mkdir()
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    return path


@needs_root
async def test_root_runs_the_server_as_another_user(embed: Embed) -> None:
    with embed() as server:
        uid = os.stat(f"/proc/{postmaster(server.data_dir)}").st_uid
        assert uid != 0
        assert (server.data_dir / "cluster").stat().st_uid == uid
        assert await query(server.url(), "SELECT 1") == 1


@needs_root
async def test_root_runs_an_existing_cluster_as_its_owner(
    participate: Participate, embed: Embed, open_folder: Path
) -> None:
    data = open_folder / "data"
    first = participate("--user", "nobody", data_dir=data)
    assert first.ask("start")["running"]
    assert first.ask("stop") == {"running": False, "url": None, "uid": NOBODY.pw_uid}
    with embed(data) as server:
        assert os.stat(f"/proc/{postmaster(data)}").st_uid == NOBODY.pw_uid
        assert await query(server.url(), "SELECT 1") == 1


@needs_root
@pytest.mark.parametrize("version", ["18", "16"])
async def test_an_ordinary_user_runs_the_server_as_itself(
    participate: Participate, open_folder: Path, version: str
) -> None:
    data = open_folder / "data"
    user = participate("--user", "nobody", "--version", version, data_dir=data)
    answer = user.ask("start")
    assert answer["uid"] == NOBODY.pw_uid
    assert os.stat(f"/proc/{postmaster(data)}").st_uid == NOBODY.pw_uid
    assert await query(answer["url"], "SELECT 1") == 1
    assert data.stat().st_mode & 0o077 == 0
    assert not user.ask("stop")["running"]


@needs_root
def test_an_ordinary_user_is_told_whose_cluster_it_is(
    participate: Participate, embed: Embed, folder: Path
) -> None:
    with embed():
        pass
    error = participate("--user", "nobody").ask("start")["error"]
    assert f"{folder}/data/cluster belongs to the user " in error
    assert "choose another data folder" in error


@needs_root
def test_an_ordinary_user_is_told_of_a_folder_it_may_not_write(
    participate: Participate, folder: Path
) -> None:
    error = participate("--user", "nobody").ask("start")["error"]
    assert f"The data folder {folder}/data cannot be created: Permission denied" in error


@needs_root
@pytest.mark.parametrize(
    "options",
    [
        {"version": "18"},
        {"version": "16"},
        *({"bin_dir": str(path)} for path in Path("/usr/lib/postgresql").glob("*/bin")),
    ],
    ids=str,
)
async def test_data_in_a_folder_closed_to_the_servers_user_works_and_stays_there(
    embed: Embed, folder: Path, options: dict[str, str]
) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    async with embed(closed / "data", **options) as server:
        await query(server.url(), "CREATE TABLE kept AS SELECT 42 AS answer")
    assert (closed / "data" / "cluster" / "PG_VERSION").exists()
    assert closed.stat().st_mode & 0o777 == 0o700
    async with embed(closed / "data", **options) as server:
        assert await query(server.url(), "SELECT answer FROM kept") == 42


@needs_root
async def test_programs_closed_to_the_servers_user_are_copied_once_and_the_copy_works(
    embed: Embed, folder: Path
) -> None:
    origin = find_binaries().folder.parent
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    package = closed / origin.parent.name
    shutil.copytree(origin, package / origin.name)
    libraries = origin.parent.with_name(f"{origin.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, closed / libraries.name)
    binaries = inspect(package / origin.name / "bin")
    assert binaries is not None
    assert not nobody().may("x", binaries.postgres)

    copy = nobody().usable(binaries, copies=folder / "copies")

    assert nobody().may("r", copy.postgres)
    assert nobody().may("x", copy.postgres)
    with embed(bin_dir=copy.folder) as server:
        assert await query(server.url(), "SELECT 1") == 1
    made = copy.postgres.stat().st_ino
    assert nobody().usable(binaries, copies=folder / "copies") == copy
    assert copy.postgres.stat().st_ino == made
    assert list((folder / "copies").iterdir()) == [copy.folder.parents[2]]


@needs_root
def test_programs_of_the_machine_that_are_closed_are_an_error(folder: Path) -> None:
    closed = folder / "closed" / "bin"
    closed.mkdir(parents=True)
    closed.parent.chmod(0o700)
    for name in ("postgres", "initdb"):
        (closed / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 17.2'\n")
        (closed / name).chmod(0o755)
    binaries = inspect(closed)
    assert binaries is not None
    with pytest.raises(EmbeddedPostgresError, match=r"nobody, who may not use the programs in .*closed/bin"):
        nobody().usable(binaries)


@needs_root
def test_a_closed_folder_on_the_way_is_found(folder: Path) -> None:
    closed = folder / "open" / "closed"
    (closed / "deep").mkdir(parents=True)
    closed.chmod(0o700)
    assert not nobody().may("x", closed / "deep")
    assert not nobody().may("x", closed)
    assert nobody().may("x", folder / "open")


def test_the_account_of_an_ordinary_user_or_of_root_is_never_root(folder: Path) -> None:
    assert choose_account(folder / "cluster").uid != 0
