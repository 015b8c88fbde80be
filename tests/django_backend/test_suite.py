"""The conformance suite of the backend, run by Django's own test runner in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import clean_environment

PROJECT = Path(__file__).parent.parent / "django_project"
PATIENCE = 600.0  # seconds; the suite takes half a minute on an idle machine
pytestmark = pytest.mark.timeout(2 * PATIENCE)
PYTHON = os.environ.get("DJANGO_PYTHON", sys.executable)
"""The Python whose Django is tested; `make integrations` runs this with several."""


def manage(url: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `manage.py`; its output, which the test shows if it fails."""
    return manage_in(PROJECT, url, *arguments, **environment)


def manage_in(
    project: Path, url: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the `manage.py` of a project."""
    return subprocess.run(
        [PYTHON, "manage.py", *arguments],
        cwd=project,
        env=clean_environment(DATABASE_URL=url, **environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


CONNECTION = (
    "suite.check_testing.InATransaction",
    "suite.check_backend.Enqueue",
    "suite.check_backend.Run.test_the_orm",
)
"""What depends on how Django connects."""


@pytest.mark.parametrize(
    ("environment", "labels"),
    [
        pytest.param({}, ("suite",), id="usual"),
        pytest.param(
            {
                "DJANGO_DATABASE_OPTIONS": '{"server_side_binding": true}',
                "DJANGO_CONN_MAX_AGE": "60",
            },
            CONNECTION,
            id="server-side binding, persistent connections",
        ),
        pytest.param(
            {"DJANGO_SECOND_DATABASE": "1", "DJANGO_GRAPHILE_WORKER": '{"DATABASE": "second"}'},
            ("suite.check_databases",),
            id="two databases",
        ),
        pytest.param({"DJANGO_DATABASE_OPTIONS": '{"pool": true}'}, CONNECTION, id="connection pool"),
    ],
)
def test_the_suite(environment: dict[str, str], labels: tuple[str, ...], server_url: str) -> None:
    if "pool" in environment.get("DJANGO_DATABASE_OPTIONS", "") and not has("psycopg_pool"):
        pytest.skip("psycopg_pool is not installed")
    run = manage(server_url, "test", "--noinput", "--pattern", "check_*.py", *labels, **environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "OK" in run.stderr


def has(module: str) -> bool:
    found = subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, timeout=PATIENCE)
    return found.returncode == 0
