"""The way of a request through the dashboard."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest

from graphile_worker.admin import admin_app
from graphile_worker.errors import ConfigError


async def test_a_page_has_the_frame(http: httpx.AsyncClient) -> None:
    answer = await http.get("/")
    assert answer.status_code == 200
    assert 'aria-current="page">Overview' in answer.text


async def test_the_session_names_the_user(http: httpx.AsyncClient) -> None:
    answer = await http.get("/api/v1/session")
    assert answer.json()["user"] == "anonymous"


def test_an_app_without_authorize_is_refused(database_url: str) -> None:
    with pytest.raises(ConfigError, match="closed by default"):
        admin_app(connection_string=database_url)


def test_the_package_loads_none_of_it() -> None:
    code = "import graphile_worker, sys; from graphile_worker import WorkerUtils, run; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert not {"starlette", "jinja2", "uvicorn", "graphile_worker.admin"} & set(loaded.stdout.split())
