"""The Dockerfile, without Docker: its files exist, and its commands work."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from cli.running import Run, running_in
from docs.blocks import ROOT
from graphile_worker.cli.main import run_main
from support.command_line import clean_environment
from support.dockerfile import read_instructions
from support.working import until

TEXT = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
KNOWN = {
    "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT",
}  # fmt: skip


INSTRUCTIONS = read_instructions(TEXT)


def all_of(keyword: str) -> list[str]:
    return [rest for name, rest in INSTRUCTIONS if name == keyword]


def one_of(keyword: str) -> str:
    (rest,) = all_of(keyword)
    return rest


def environment() -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(one_of("ENV")))


def health_command() -> list[str]:
    command: list[str] = json.loads(one_of("HEALTHCHECK").partition("CMD ")[2])
    return command


def test_only_instructions_that_are_checked_here_are_used() -> None:
    assert {name for name, _ in INSTRUCTIONS} == KNOWN


def test_everything_that_is_copied_exists_and_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored[0] == "*"
    for sources in (rest.split()[:-1] for rest in all_of("COPY") if not rest.startswith("--from=")):
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(fnmatch(source.removeprefix("./"), entry[1:]) for entry in ignored if entry[0] == "!")


def test_everything_that_building_the_package_reads_is_copied() -> None:
    copied = " ".join(all_of("COPY")).split()
    needed = {"pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"], "src"}
    assert needed <= set(copied)
    assert PROJECT["tool"]["hatch"]["version"]["path"].startswith("src/")


def test_extras_interpreter_and_folders_fit_the_package() -> None:
    (install,) = [rest for rest in all_of("RUN") if "pip install" in rest]
    for extras in re.findall(r"\.\[([\w,]+)\]", install):
        assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    home = "/opt/graphile-worker"
    assert f"python -m venv {home}" in install
    assert f"{home}/bin/pip install" in install
    assert f"--from=build {home} {home}" in all_of("COPY")
    assert environment()["PATH"].startswith(f"{home}/bin:")
    bases = {rest.split()[0] for rest in all_of("FROM")}
    assert len(bases) == 1  # a venv works only with the interpreter that created it
    (version,) = re.findall(r"python:(3\.\d+)-slim", bases.pop())
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]


def test_it_does_not_run_as_root_and_tasks_are_found_where_they_are_mounted() -> None:
    number = one_of("USER")  # Kubernetes cannot check a name
    (made,) = [rest for rest in all_of("RUN") if "useradd" in rest]
    assert re.search(rf"useradd .*--uid {int(number)} worker\b", made)
    assert int(number) > 0
    assert "/worker/tasks" in made
    assert all_of("WORKDIR")[-1] == "/worker"
    order = [name for name, _ in INSTRUCTIONS]
    assert order.index("USER") > max(index for index, name in enumerate(order) if name == "RUN")


def test_a_stop_of_the_container_is_one_that_the_worker_understands() -> None:
    assert signal.Signals[one_of("STOPSIGNAL")] is signal.SIGTERM
    (entry,) = json.loads(one_of("ENTRYPOINT"))
    assert entry in PROJECT["project"]["scripts"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "hello.py").write_text("def hello(): print('hello', flush=True)\n")
    with running_in(tmp_path) as run:
        yield run


async def test_the_health_check_sees_the_worker_of_the_entry_point(
    run: Run, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 1024 < int(environment()["GRAPHILE_WORKER_HTTP_PORT"]) < 65536
    program, *check = health_command()
    assert [program] == json.loads(one_of("ENTRYPOINT"))
    settings = {name: value for name, value in environment().items() if name != "PATH"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        settings["GRAPHILE_WORKER_HTTP_PORT"] = port = str(free.getsockname()[1])
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.setenv("GRAPHILE_WORKER_HTTP_PORT", port)
    monkeypatch.chdir(tmp_path)
    assert run_main(check) == 1
    worker = run(DATABASE_URL=database_url, **settings).ready()
    await until(lambda: run_main(check) == 0)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert run_main(check) == 1
