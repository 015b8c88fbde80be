"""All SQL text of the package, in `.sql` files; this module only reads them.

`queries/` holds one statement per file, `migrations/` the line shared with Node and Rust, `extensions/`
our own additions. Files write the schema as `:GRAPHILE_WORKER_SCHEMA`; it is replaced by the quoted name.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from ..schema_name import SchemaName

PLACEHOLDER = ":GRAPHILE_WORKER_SCHEMA"


@cache
def load(path: str, schema: SchemaName) -> str:
    """The text of `path` below this folder (without `.sql`) for one schema, e.g. `queries/add_job`."""
    return _read(path).replace(PLACEHOLDER, schema.quoted)


@cache
def _read(path: str) -> str:
    return files(__package__).joinpath(f"{path}.sql").read_text(encoding="utf-8")
