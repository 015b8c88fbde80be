"""Django's connections, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.errors import InvalidArgumentError

PROCESS = Path(__file__).with_name("django_process.py")


@pytest.mark.parametrize("binding", ["client", "server"])
def test_jobs_are_added_in_djangos_transactions(binding: str, database_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROCESS), database_url, binding],
        env={**os.environ, "PYTHONPATH": str(PROCESS.parents[1])},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout == "done\n", done.stderr


def test_asynchronous_code_is_told_to_use_another_client() -> None:
    from django.db import connection  # not configured, and not connected

    with pytest.raises(
        InvalidArgumentError,
        match=r"is a blocking connection of Django; use SyncWorkerUtils\.bound\(connection\), or give",
    ):
        WorkerUtils.bound(connection)
