"""The command as a separate process, and its result."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
