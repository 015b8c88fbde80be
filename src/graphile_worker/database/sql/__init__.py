"""All SQL of the package, in `.sql` files; this module only reads them.

Each folder holds the statements of one area, one per file. `migrations/` is the line shared with Node and
Rust, `own_objects/` has the Python-only objects, `testing/` is for test databases. Files write the schema as
`:GRAPHILE_WORKER_SCHEMA`, which is replaced by the quoted name. A line `:include name` is replaced by a file
of `parts/`, which several statements share. `load("fetch/get_jobs@wide")` is a variant of a statement: parts
that have a file with this suffix, such as `parts/queued_wide`, are included from there.

A role that may create objects in a schema on search_path, usually `public`, must not be able to run code
with our privileges. PostgreSQL prefers a function or operator whose types match exactly, in any schema, to
one in `pg_catalog` that needs a conversion. So **every name has an exact match in `pg_catalog`, which is
searched first, or is qualified**: `exp(x::double precision)`, not `exp(integer)`; `pg_catalog.unnest(…)`,
because polymorphic functions never match exactly; `operator(pg_catalog.<>)` for two arrays, for the same
reason. An untyped literal or parameter takes the type of the operator's other side, so write
`document -> 'a'::text`; and cast a parameter wherever it is used, because some drivers send the type of the
Python value, or a literal. `f('x')`, with one untyped literal, is a conversion if there is a type `f`, such
as a domain with a check, so qualify it. Calls with more than two arguments are always qualified, and so are
the tables of `pg_catalog`, since temporary ones come before it.

Functions with their owner's rights, and those that write to no application table, have
`set search_path to pg_catalog, pg_temp`. Others have no such setting, because application triggers
would inherit it. A session setting is no protection: sessions are shared with tasks, callers and poolers.

`tests/hostile/test_exact_calls.py` checks this in the server's parse trees, for every statement and every
statement of every function, and `test_whole_programs.py` for SQL that is assembled at run time and for what
the driver sends by itself, in a database with thousands of hostile functions and operators.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ...values.schema_name import SchemaName

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
