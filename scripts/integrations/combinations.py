"""Versions that are tested together. The oldest ones are those that the extras in pyproject.toml name.

`make libraries` has the newest versions that run on its Python; `newest` here is for newer Pythons.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MINIMUM = re.compile(r"([\w-]+)(\[[\w,]+\])?>=([\w.]+)$")
WITH_WHEELS = {"psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary"}
"""Packages that would have to be compiled, and those that have the same code compiled."""

THIS = (sys.executable,)
NEWER = ("python3.13", "python3.12", "python3.14")


class Combination(NamedTuple):
    """Versions to test together."""

    name: str
    pythons: tuple[str, ...]
    """Pythons that can run it; the first one that exists is used."""
    packages: tuple[str, ...]
    tests: tuple[str, ...]
    """Arguments of pytest."""
    is_django: bool = False
    """Whether the tests start processes of another Python, instead of being run by it."""


def oldest(*extras: str) -> tuple[str, ...]:
    """The oldest supported versions of the packages that these extras name."""
    return tuple(_minimum(each) for extra in extras for each in PROJECT["optional-dependencies"][extra])


def _minimum(requirement: str) -> str:
    found = MINIMUM.match(requirement)
    if found is None:
        sys.exit(f"pyproject.toml: {requirement!r} names no oldest version")
    name, extras, version = found.groups(default="")
    return f"{WITH_WHEELS.get(name, name + extras)}=={version}"


CORE = tuple(_minimum(each) for each in PROJECT["dependencies"])
DATABASES = (
    "tests/foreign",
    "tests/contrib/test_alembic.py",
    "tests/client/test_other_drivers.py",
    "--ignore=tests/foreign/test_django.py",
)
WEB = tuple(
    f"tests/contrib/test_{name}.py"
    for name in ("dishka", "fastapi", "flask", "litestar", "pydantic", "quart", "servers", "starlette")
)
WEB_TOOLS = ("flask-sqlalchemy>=3.1", "gunicorn>=25", "psycopg[binary]", "sqlalchemy[asyncio]")
DJANGO = ("tests/django_backend", "-k", "usual or pool or shop")
DJANGO_TYPES = ("django-stubs", "mypy", "pyright[nodejs]")
"""For the example; our own code is checked without them."""

COMBINATIONS = (
    Combination(
        "databases-oldest",
        THIS,
        (*CORE, *oldest("sqlalchemy", "psycopg", "psycopg2", "alembic"), "sqlmodel==0.0.14"),
        DATABASES,
    ),
    Combination(
        "web-oldest",
        THIS,
        (*oldest("fastapi", "flask", "litestar", "quart", "admin", "dishka", "pydantic"), *WEB_TOOLS),
        WEB,
    ),
    Combination(
        "databases-newest",
        NEWER,
        ("sqlalchemy[asyncio]", "psycopg[binary]", "psycopg2-binary", "alembic", "sqlmodel"),
        DATABASES,
    ),
    Combination(
        "web-newest",
        NEWER,
        ("fastapi", "flask", "litestar", "quart", "dishka", "pydantic-settings", *WEB_TOOLS),
        WEB,
    ),
    Combination("django-6.0", NEWER, ("django~=6.0.0", "psycopg[binary]"), DJANGO, is_django=True),
    Combination(
        "django-newest",
        NEWER,
        ("django>=6.1", "psycopg[binary,pool]", *DJANGO_TYPES),
        DJANGO,
        is_django=True,
    ),
    Combination(
        "django-5.2-psycopg2",
        THIS,
        ("django~=5.2.0", "django-tasks>=0.12", "psycopg2-binary", *DJANGO_TYPES),
        DJANGO,
        is_django=True,
    ),
)
QUICK = ("databases-oldest", "web-oldest")
"""Those for every change: what `make libraries` does not have on this Python."""
