"""The reference pages match the code and the schema."""

from __future__ import annotations

import subprocess
import sys

from docs.blocks import ROOT
from graphile_worker import errors
from graphile_worker.config.settings import known_settings
from graphile_worker.hooks.events import EVENT_TYPES
from support.command_line import clean_environment

REFERENCE = ROOT / "docs" / "reference"


def test_the_reference_pages_are_what_the_generator_makes_of_the_code(database_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.reference", "--check"],
        cwd=ROOT,
        env=clean_environment(DATABASE_URL=database_url),
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr


def test_every_option_is_there() -> None:
    text = (REFERENCE / "options.md").read_text()
    for setting in known_settings().values():
        assert f"| `{setting.name}` |" in text
        assert f"`{setting.variable}`" in text


def test_every_event_is_there() -> None:
    text = (REFERENCE / "events.md").read_text()
    for name, kind in EVENT_TYPES.items():
        assert f"| `{kind.__name__}` | `{name}`" in text


def test_every_error_is_there() -> None:
    text = (REFERENCE / "errors.md").read_text()
    for name, thing in vars(errors).items():
        if isinstance(thing, type) and issubclass(thing, errors.GraphileWorkerError):
            assert f"| `{name}` |" in text


async def test_every_function_of_the_schema_is_there(connection: object) -> None:
    rows = await connection.fetch(  # type: ignore[attr-defined]
        "select proname from pg_proc where pronamespace = 'graphile_worker'::regnamespace "
        r"and proname not like '\_private\_%'"
    )
    text = (REFERENCE / "sql.md").read_text()
    assert rows
    for row in rows:
        assert f"### `{row['proname']}`" in text
