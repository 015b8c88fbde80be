"""The command in this process or as a separate one, and its result."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from graphile_worker.cli.main import run_main
from support.process_state import restored_process

COMMAND = [sys.executable, "-m", "graphile_worker"]

INNER_PYTEST = {"PYTEST_ADDOPTS": "-p no:faker -p no:hypothesispytest --assert=plain"}
"""For test runs that tests start: no plugins that take a second to import, and no second compilation of the
package for its assertions."""


@dataclass(frozen=True)
class Result:
    """The exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def check(self) -> Result:
        assert self.status == 0, self.err
        return self


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without anything that configures us, or that slows programs down."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PG", "GRAPHILE_", "NO_LOG")) and name != "DATABASE_URL"
    }
    return kept | INNER_PYTEST | more


Call = Callable[..., Result]
"""`call("list", "--json", input=…)`"""


def in_this_process(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs the command without a process of its own, which would take a hundred times as long."""

    def run(*arguments: object, input: str = "", **environment: str) -> Result:
        capsys.readouterr()
        with monkeypatch.context() as patch, restored_process():
            patch.setattr(sys, "stdin", io.StringIO(input))
            for name, value in environment.items():
                patch.setenv(name, value)
            try:
                status = run_main([str(argument) for argument in arguments])
            except SystemExit as end:  # the completion of shells
                status = int(end.code or 0)
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return run
