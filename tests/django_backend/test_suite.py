"""The conformance suite of the backend, run by Django's own test runner in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import clean_environment

PROJECT = Path(__file__).parent.parent / "django_project"
PATIENCE = 280.0
PYTHON = os.environ.get("DJANGO_PYTHON", sys.executable)
"""The Python whose Django is tested; `make integrations` runs this with several."""


def manage(url: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `manage.py`; its output, which the test shows if it fails."""
    return subprocess.run(
        [PYTHON, "manage.py", *arguments],
        cwd=PROJECT,
        env=clean_environment(DATABASE_URL=url, **environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"DJANGO_DATABASE_OPTIONS": json.dumps({"server_side_binding": True}), "DJANGO_CONN_MAX_AGE": "60"},
    ],
    ids=["usual", "server-side binding, persistent connections"],
)
def test_the_suite(environment: dict[str, str], server_url: str) -> None:
    run = manage(server_url, "test", "--noinput", "--pattern", "check_*.py", "suite", **environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "OK" in run.stderr
