"""Console blocks, which are not run because they install packages, never end or need another machine.

Each line is a command. Our own are parsed by the real command line, so every flag and value must exist. Of
other commands only known kinds are allowed, and what they refer to is checked.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest
import uvicorn
import yaml

from cli.typing_commands import parse, words_of
from docs.blocks import ROOT, Block, blocks_of, name_of, pages
from graphile_worker.contrib.django.management.commands.graphile_worker import Command
from graphile_worker.runner.process.probes import PATHS

PROJECT = ROOT / "examples" / "first_project"
LINES = [
    (page, block, line)
    for page in pages()
    for block in blocks_of(page)
    if block.language == "console"
    for line in block.text.splitlines()
    if line.strip()
]


@pytest.mark.parametrize(
    ("page", "block", "line"), LINES, ids=[f"{name_of(page)}:{block.line}" for page, block, _ in LINES]
)
def test_every_command_in_a_console_block_could_be_typed(page: Path, block: Block, line: str) -> None:
    match words_of(line):
        case ["graphile-worker", *arguments]:
            parse(arguments)
        case ["python", "manage.py", "migrate"]:
            pass
        case ["python", "manage.py", "graphile_worker", *arguments]:
            found = Command().create_parser("manage.py", "graphile_worker").parse_args(arguments)
            if found.words:
                parse(found.words)
        case ["python3", "-m", "venv", ".venv"] | [".", ".venv/bin/activate"]:
            pass
        case ["pip", "install", "--editable", ".", "--group", group]:
            project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
            assert group in project["dependency-groups"]
        case ["pip", "install", "--upgrade", "pip"]:
            pass
        case ["pip", "install", *packages]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            for package in packages:
                name, _, wanted = package.rstrip("]").partition("[")
                assert name in (".", "path/to/checkout", "graphile-worker", "pytest", "pytest-asyncio")
                assert set(wanted.split(",")) - {""} <= set(extras)
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case ["uvicorn", *arguments]:
            uvicorn.main.make_context("uvicorn", arguments)
        case ["docker", "compose", "up" | "logs", *arguments]:
            services = yaml.safe_load((PROJECT / "compose.yaml").read_text())["services"]
            named = [word.partition("=")[0] for word in arguments if not word.startswith("--")]
            assert set(named) <= set(services)
        case ["sudo", "cp", files, "/etc/systemd/system/"]:
            assert list(PROJECT.glob(files))
        case ["sudo", "systemctl", "daemon-reload"]:
            pass
        case ["sudo", "systemctl", "enable" | "reload", *units]:
            for unit in units:
                assert unit == "--now" or (PROJECT / "deploy" / "systemd" / f"{unit}.service").is_file()
        case ["kubectl", "apply", "--kustomize", folder]:
            assert (PROJECT / folder / "kustomization.yaml").is_file()
        case ["kubectl", "create", "namespace" | "secret", *_]:
            pass
        case ["docker", "build", "-t", "graphile-worker", "."]:
            assert (ROOT / "Dockerfile").is_file()
        case ["docker", "run", *arguments]:
            parse(arguments[arguments.index("graphile-worker") + 1 :])
        case ["eval", script]:
            assert re.fullmatch(r"\$\(_GRAPHILE_WORKER_COMPLETE=(bash|zsh)_source graphile-worker\)", script)
        case ["curl", address]:
            assert f"/{address.partition('/')[2]}" in PATHS
        case ["pytest"] | ["export", _]:
            pass
        case other:
            pytest.fail(f"{name_of(page)}:{block.line}: unknown kind of command: {other}")


def test_a_flag_that_does_not_exist_would_be_noticed() -> None:
    with pytest.raises(click.UsageError):
        parse(["health", "--no-such-flag"])
    with pytest.raises(click.UsageError):
        parse(["healht"])
    parse(words_of("graphile-worker dev --fresh -j 10     deletes the data")[1:])
