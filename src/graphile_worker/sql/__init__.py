"""All SQL text of the package, in `.sql` files; this module only reads them.

`queries/` holds one statement per file, `migrations/` the line shared with Node and Rust, `extensions/`
our own additions, `testing/` what only test databases get. Files write the schema as
`:GRAPHILE_WORKER_SCHEMA`; it is replaced by the quoted name. A line `:include name` stands for a file of
`parts/`, where text lives that several statements have in common.

A role that may create objects in a schema of search_path, usually `public`, must not get them called with
our rights. PostgreSQL prefers a function or an operator with exactly the types of the call, in whatever
schema, to one in `pg_catalog` that needs a conversion. So the arguments of every call and operator have the
very types of a built-in one (`exp(x::double precision)`, not `exp(integer)`), or the name is qualified
(`pg_catalog.unnest(…)`, because functions that take any type never match exactly). Calls with more than two
arguments are always qualified. `tests/queries/test_hostile.py` holds this.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ..schema_name import SchemaName

PLACEHOLDER = ":GRAPHILE_WORKER_SCHEMA"
INCLUDE = ":include "
FOLDER = Path(__file__).parent  # importlib.resources would cost a command ten milliseconds to import


@cache
def load(path: str, schema: SchemaName) -> str:
    """The text of `path` below this folder (without `.sql`) for one schema, e.g. `add/add_job`."""
    return _read(path).replace(PLACEHOLDER, schema.quoted)


@cache
def _read(path: str) -> str:
    text = (FOLDER / f"{path}.sql").read_text(encoding="utf-8")
    if INCLUDE not in text:
        return text
    lines = text.splitlines(keepends=True)
    return "".join(
        _read(f"parts/{line.removeprefix(INCLUDE).strip()}") if line.startswith(INCLUDE) else line
        for line in lines
    )
