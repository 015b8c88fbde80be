"""All SQL of the package, in `.sql` files; this module only reads them.

A file has the statements of a subject: `load("limits/set_limit", schema)` is the section of `limits.sql` that
begins with the line `-- statement: set_limit`. A large subject is a folder of several files, such as
`fetch/`, in which each name occurs once. Comments after the first line of a section are not sent. Files write
the schema as `:GRAPHILE_WORKER_SCHEMA`, which is replaced by the quoted name.

A line `:include name` is replaced by the section `-- part: name` of the same subject, or of `parts/`, which
subjects share. A part may include others. `-- statement: look @unasked` has a variant,
`load("control/look@unasked", schema)`: parts that have a section with this suffix, such as
`-- part: requested@unasked`, are included from there. A variant may have two suffixes, and the name of a
script may have one. Nothing but quoted names is put into a statement, so `names()` lists all that there are,
and `python -m graphile_worker.database.sql control/look@unasked` prints one.

`migrations/` is the line shared with Node and Rust, and `own_objects/` has the Python-only objects: scripts,
each in a file of its own. The subject `testing` is for test databases.

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
SCRIPTS = ("migrations/", "own_objects/")
"""Files that people read, so they keep their first comment. Statements begin with their first word."""
PARTS = "parts"
MOST_INCLUDES = 4
"""How deep parts may include others; more is a circle."""
FOLDER = Path(__file__).parent  # importlib.resources takes ten milliseconds to import
_HEADING = re.compile(r"^-- (statement|part): (.+)\n", re.MULTILINE)
_LEADING_COMMENT = re.compile(r"\A(?:--[^\n]*\n|\s+)+")


@cache
def load(name: str, schema: SchemaName | None = None) -> str:
    """A statement, as in `add/add_job`, a script, as in `migrations/baseline`, or a part, `parts/back_off`.

    One that names the schema needs `schema`; others do not.
    """
    text = _with_parts(_own_text(name), name)
    if not name.startswith(SCRIPTS):
        text = _LEADING_COMMENT.sub("", text)
    if schema is not None:
        return text.replace(PLACEHOLDER, schema.quoted)
    if PLACEHOLDER in text:
        raise ValueError(f"{name} needs a schema")
    return text


def names() -> list[str]:
    """Every statement with its variants, and every script."""
    paths = [file.relative_to(FOLDER).with_suffix("").as_posix() for file in FOLDER.rglob("*.sql")]
    subjects = {path.partition("/")[0] for path in paths if not path.startswith((*SCRIPTS, f"{PARTS}/"))}
    statements = [f"{subject}/{title}" for subject in subjects for title in _sections(subject)["statement"]]
    return sorted([*statements, *(path for path in paths if path.startswith(SCRIPTS))])


def _own_text(name: str) -> str:
    """What the files have under this name, without the parts that it includes."""
    if name.startswith(SCRIPTS):
        file = FOLDER / f"{name}.sql"
        if not file.is_file():
            raise LookupError(f"there is no script {name}: no file {file}")
        return file.read_text(encoding="utf-8")
    subject, _, title = name.partition("/")
    kind = "part" if subject == PARTS else "statement"
    text = _sections(subject)[kind].get(title)
    if text is None:
        raise LookupError(f"there is no {kind} {name}: no line '-- {kind}: {title}' in {FOLDER / subject}")
    return text


def _with_parts(text: str, name: str, depth: int = 0) -> str:
    """The text with the parts that it includes."""
    if INCLUDE not in text:
        return text
    if depth == MOST_INCLUDES:
        raise ValueError(f"{name}: more than {MOST_INCLUDES} parts include each other")
    lines = text.splitlines(keepends=True)
    return "".join(
        _with_parts(_part(line.removeprefix(INCLUDE).strip(), name), name, depth + 1)
        if line.startswith(INCLUDE)
        else line
        for line in lines
    )


def _part(title: str, name: str) -> str:
    """The part that the statement or script of this name includes, in its variant."""
    path, *variants = name.split("@")
    subject = PARTS if path.startswith(SCRIPTS) else path.partition("/")[0]
    titles = [*(f"{title}@{variant}" for variant in variants), title]
    for parts in (_sections(subject)["part"], _sections(PARTS)["part"]):
        for each in titles:
            if each in parts:
                return parts[each]
    raise LookupError(f"{name} includes {title!r}: there is no such part in {FOLDER / subject} or in {PARTS}")


@cache
def _sections(subject: str) -> dict[str, dict[str, str]]:
    """The texts of a subject's statements and parts by their titles."""
    found: dict[str, dict[str, str]] = {"statement": {}, "part": {}}
    file = FOLDER / f"{subject}.sql"
    for each in [file] if file.is_file() else sorted((FOLDER / subject).glob("*.sql")):
        _, *pieces = _HEADING.split(each.read_text(encoding="utf-8"))
        for kind, titles, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            for title in titles.replace(" @", f" {titles.split()[0]}@").split():
                if title in found[kind]:
                    raise ValueError(f"{each}: there are two sections {title!r}")
                found[kind][title] = text.strip("\n") + "\n"
    return found
