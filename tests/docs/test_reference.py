"""The reference pages match the code and the schema."""

from __future__ import annotations

import builtins
import collections.abc
import re
import subprocess
import sys
import typing

from scripts.reference.api_page import HOMES
from scripts.reference.sql_page import FOR_RUST

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
    text = "".join(page.read_text() for page in REFERENCE.glob("*options.md"))
    for setting in known_settings().values():
        assert f"| `{setting.name}` |" in text


def test_every_event_is_there() -> None:
    text = (REFERENCE / "events.md").read_text()
    for name, kind in EVENT_TYPES.items():
        assert f"| `{kind.__name__}` | `{name}`" in text


def test_every_error_is_there() -> None:
    text = (REFERENCE / "errors.md").read_text()
    for name, thing in vars(errors).items():
        if isinstance(thing, type) and issubclass(thing, errors.GraphileWorkerError):
            assert f"| `{name}` |" in text


OTHERS = ("options", "process-options", "dashboard-options", "events", "errors", "sql")
LIBRARY = [page for page in REFERENCE.glob("*.md") if page.stem not in OTHERS]
NOT_OURS = {
    *vars(builtins), *vars(typing), *vars(collections.abc),
    "AbstractAsyncContextManager", "Logger", "ModuleType", "Path", "ZoneInfo",
}  # fmt: skip
# Of asyncpg and others; imported from there.
DRIVER = {"AnyPool", "BlockingConnection", "Connection", "Row", "UserConnection"}
UNNAMED = {
    "AddedTask", "AnyTask", "CronItemKeywords", "CronJobKeyMode", "CronOptionKeywords", "FilterState",
    "Handler", "HasIdentifier", "JobLogger", "Liveness", "Matcher", "PipeHandler", "Prepare", "Runtime",
    "SchemaName", "SyncAddedTask", "TaskArguments", "TaskDecorator", "TaskLike", "TaskRules",
    "TimestampDigest",
}  # fmt: skip
"""Types that programs use without naming them."""
PARAMETERS = {"Injected", "Arguments", "Result", "Returned"}
CODE = re.compile(r"```text\n(.*?)```|^\| `\w+` \| `(.*?)` \|", re.DOTALL | re.MULTILINE)


def _headings() -> set[str]:
    pages = [page.read_text() for page in REFERENCE.glob("*.md")]
    return {name for text in pages for name in re.findall(r"^## `(\w+)`$", text, re.MULTILINE)}


def test_every_public_name_is_documented() -> None:
    errors_page = (REFERENCE / "errors.md").read_text()
    documented = _headings() | set(re.findall(r"^\| `(\w+)` \|", errors_page, re.MULTILINE))
    public = {name for module in HOMES for name in module.__all__} - {"__version__"}
    assert public - documented == set()


def test_every_type_in_a_public_signature_is_public() -> None:
    events = set(re.findall(r"`(\w+)`", (REFERENCE / "events.md").read_text()))
    known = NOT_OURS | DRIVER | UNNAMED | PARAMETERS | events | _headings() | {"Event"}
    for page in LIBRARY:
        for code, kind in CODE.findall(page.read_text()):
            names = set(re.findall(r"\b[A-Z][a-z]\w+", code or kind))
            assert names - known == set(), page.name


def test_only_public_members_are_documented() -> None:
    for page in LIBRARY:
        assert re.findall(r"^(?:###|\|) `(?:\w+\.)?(?:_|raw_)\w*`", page.read_text(), re.MULTILINE) == []


async def test_every_function_of_the_schema_is_there(connection: object) -> None:
    rows = await connection.fetch(  # type: ignore[attr-defined]
        "select proname from pg_proc where pronamespace = 'graphile_worker'::regnamespace "
        r"and proname not like '\_private\_%'"
    )
    text = (REFERENCE / "sql.md").read_text()
    assert rows
    for row in rows:
        name = row["proname"]
        assert (f"- `{name}`" if name in FOR_RUST else f"### `{name}`") in text
