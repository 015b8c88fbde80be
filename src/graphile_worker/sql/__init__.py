"""All SQL of the package, in `.sql` files; this module only reads them.

Each folder holds the statements of one area, one per file. `migrations/` is the line shared with Node and
Rust, `own_objects/` has the Python-only objects, `testing/` is for test databases. Files write the schema as
`:GRAPHILE_WORKER_SCHEMA`, which is replaced by the quoted name. A line `:include name` is replaced by a file
of `parts/`, which several statements share. `load("fetch/get_jobs@wide")` is a variant of a statement: parts
that have a file with this suffix, such as `parts/queued_wide`, are included from there.

A role that may create objects in a schema on search_path, usually `public`, must not be able to run code
with our privileges. PostgreSQL prefers a function or operator whose types match exactly, in any schema, to
one in `pg_catalog` that needs a conversion. So every call and operator has arguments of exactly the
built-in's types (`exp(x::double precision)`, not `exp(integer)`), or the name is qualified
(`pg_catalog.unnest(…)`, because polymorphic functions never match exactly). Calls with more than two
arguments are always qualified. `tests/queries/test_hostile.py` checks this.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ..schema_name import SchemaName

PLACEHOLDER = ":GRAPHILE_WORKER_SCHEMA"
INCLUDE = ":include "
DEFINITIONS = ("migrations/", "own_objects/", "parts/")
"""Files that people read as scripts. Statements begin with their first word, which drivers and tools show."""
_LEADING_COMMENT = re.compile(r"\A(?:--[^\n]*\n|\s+)+")
FOLDER = Path(__file__).parent  # importlib.resources takes ten milliseconds to import


@cache
def load(path: str, schema: SchemaName | None = None) -> str:
    """The statement in `path` below this folder (without `.sql`), e.g. `add/add_job`.

    A statement that names the schema needs `schema`; others do not.
    """
    text = _read(path)
    if not path.startswith(DEFINITIONS):
        text = _LEADING_COMMENT.sub("", text)
    if schema is not None:
        return text.replace(PLACEHOLDER, schema.quoted)
    if PLACEHOLDER in text:
        raise ValueError(f"{path}.sql needs a schema")
    return text


@cache
def _read(path: str, variant: str = "") -> str:
    path, _, variant = path.partition("@") if "@" in path else (path, "", variant)
    if variant and path.startswith("parts/") and (FOLDER / f"{path}_{variant}.sql").exists():
        path = f"{path}_{variant}"
    text = (FOLDER / f"{path}.sql").read_text(encoding="utf-8")
    if INCLUDE not in text:
        return text
    lines = text.splitlines(keepends=True)
    return "".join(
        _read(f"parts/{line.removeprefix(INCLUDE).strip()}", variant) if line.startswith(INCLUDE) else line
        for line in lines
    )
