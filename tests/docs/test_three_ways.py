"""The table of what `run`, `serve` and the command take is complete, and every cell of it is true."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest

from graphile_worker import App, serve
from graphile_worker.cli.main import graphile_worker
from graphile_worker.config.settings import SERVE_OPTIONS
from graphile_worker.errors import ConfigError
from graphile_worker.runner.arguments import RunArguments, WorkerArguments
from graphile_worker.runner.process.serve import OWN_ARGUMENTS
from graphile_worker.values.options import WorkerOptions

PAGE = Path(__file__).parents[2] / "docs" / "worker-program.md"
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ROWS = {name: cells for name, *cells in ROW.findall(PAGE.read_text())}
IN_RUN = frozenset(RunArguments.__annotations__)
IN_SERVE = frozenset((*WorkerArguments.__annotations__, *OWN_ARGUMENTS))
ELSEWHERE = {"--schema-only", "--cleanup", "--version"}
"""Flags that run no worker."""


def flags_of(parameter: click.Parameter) -> set[str]:
    return {flag for flag in parameter.opts if flag.strip()}


def test_every_argument_and_every_flag_has_a_row() -> None:
    objects = (IN_RUN | IN_SERVE) - set(WorkerOptions.__struct_fields__)
    assert objects <= set(ROWS)
    named = {flag for *_, cell in ROWS.values() for flag in re.findall(r"`(-[^`]+)`", cell)}
    text = PAGE.read_text()
    for parameter in graphile_worker.params:
        assert flags_of(parameter) & named or flags_of(parameter) & ELSEWHERE, parameter.name
    assert all(flag in text for flag in ELSEWHERE - {"--version"})


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_true(name: str) -> None:
    in_run, in_serve, command = ROWS[name]
    assert in_run.startswith("yes") == (name in IN_RUN)
    assert in_serve.startswith("yes") == (name in IN_SERVE and name != "pg_pool")
    flags = {flag: parameter for parameter in graphile_worker.params for flag in parameter.opts}
    for flag in re.findall(r"`(-[^`]+)`", command):
        parameter = flags[flag].name or ""
        option = {"config": "options"}.get(parameter, parameter)
        assert option == name or name == "log_levels"
    for argument in re.findall(r"App\((\w+)=", command):
        assert argument in inspect.signature(App).parameters
    assert command.startswith(("`", "no"))


def test_the_arguments_of_serve_are_these() -> None:
    own = [
        name for name, each in inspect.signature(serve).parameters.items() if each.kind is each.KEYWORD_ONLY
    ]
    assert sorted((*own, *SERVE_OPTIONS)) == sorted(OWN_ARGUMENTS)
    with pytest.raises(ConfigError, match="processes: expected a number from 1"):
        serve(task_list={}, connection_string="postgres:///unused", processes=0)
