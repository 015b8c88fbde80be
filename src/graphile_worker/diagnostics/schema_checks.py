"""Judges the schema: its revision, the role's rights, whose functions it has, and its indexes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from ..migrate import SUPPORTED_REVISION, known_extensions
from ..migrate.state import SchemaState
from ..schema_name import SchemaName
from ..sql import load
from .facts import FunctionFacts, IndexFacts, SequenceFacts, TableRights
from .finding import Finding, some, well
from .function_origin import SHARED_FUNCTIONS, Origin, origin_of

SHARED_INDEXES = (
    "job_queues_pkey1",
    "job_queues_queue_name_key",
    "jobs_key_key1",
    "jobs_main_index",
    "jobs_no_queue_index",
    "jobs_pkey1",
    "known_crontabs_pkey",
    "migrations_pkey",
    "tasks_identifier_key",
    "tasks_pkey",
)
USED_UP = 0.5
WEAKNESS: dict[Origin, str] = {
    "Python": "",
    "Node": "A keyed add that meets a worker which takes the same job at that moment can get lost "
    "(returning no job). Everything else works.",
    "Node, before 0.18": "A keyed add that meets a worker which takes the same job at that moment can get "
    "lost, and every add uses up numbers of the small identity columns of tasks and queues.",
    "Rust": "A keyed add that meets a worker which takes the same job fails with the code GWNOR and must be "
    "repeated, and every add uses up numbers of the small identity columns of tasks and queues.",
    "unknown": "They may come from another version, or were changed by hand.",
}


def check_schema(state: SchemaState, schema: SchemaName) -> Iterator[Finding]:
    """Whether it is installed, and how far."""
    migrate = "Run `graphile-worker migrate` as the role that owns the schema."
    if state.revision is None:
        yield Finding(
            "schema", "error", f"the schema {schema.quoted} is not installed in this database",
            "There is no queue here: workers install it when they start, clients do not.",
            "Run `graphile-worker migrate`; or name the right database (-c) and schema (-s).",
        )  # fmt: skip
    elif state.breaking_revision is not None and state.breaking_revision > SUPPORTED_REVISION:
        yield Finding(
            "schema", "error", f"the schema is at revision {state.revision}, this package knows "
            f"{SUPPORTED_REVISION}",
            "A newer worker changed it in a way that this version does not understand.",
            "Install a newer version of graphile-worker.",
        )  # fmt: skip
    elif state.revision > SUPPORTED_REVISION:
        yield Finding(
            "schema", "warning", f"the schema is at revision {state.revision}, this package knows "
            f"{SUPPORTED_REVISION}",
            "A newer worker changed it; the changes are not marked as breaking.",
            "Consider a newer version of graphile-worker.",
        )  # fmt: skip
    elif state.revision < SUPPORTED_REVISION:
        yield Finding(
            "schema", "error", f"the schema is at revision {state.revision}, {SUPPORTED_REVISION} is needed",
            "It was installed by an older version. A worker upgrades it when it starts, if it may.",
            migrate,
        )  # fmt: skip
    else:
        yield well("schema", f"schema {schema.quoted} at revision {state.revision}")


def check_extensions(applied: Collection[int]) -> Iterator[Finding]:
    """Whether the objects of this package are there."""
    missing = [extension.name for extension in known_extensions() if extension.number not in applied]
    if missing:
        yield Finding(
            "schema", "warning", f"additions of this package are missing: {some(missing)}",
            "Jobs run without them, but named queues are slower, and the jobs of a worker that died come "
            "back after hours instead of seconds.",
            "Run `graphile-worker migrate` as the role that owns the schema.",
        )  # fmt: skip


def check_rights(
    tables: Sequence[TableRights], functions: Sequence[FunctionFacts], role: str, schema: SchemaName
) -> Iterator[Finding]:
    """What the role lacks."""
    owners = sorted({table.owner for table in tables})
    as_owner = (
        f"Connect as {some(owners)}, who owns the tables; or grant that role: grant {owners[0]} to {role};"
    )
    if not all(table.may_enter for table in tables):
        yield Finding(
            "rights", "error", f"the role {role} may not use the schema {schema.quoted}",
            "It can neither add nor run jobs.", as_owner,
        )  # fmt: skip
        return
    denied = [table.name for table in tables if not table.may_use]
    hidden = [table.name for table in tables if table.row_security]
    locked_out = [function.name for function in functions if not function.may_execute]
    if denied:
        yield Finding(
            "rights", "error", f"the role {role} may not read and change {some(denied)}",
            "It can neither add nor run jobs.", as_owner,
        )  # fmt: skip
    elif hidden:
        yield Finding(
            "rights", "error", f"row security hides the rows of {some(hidden)} from the role {role}",
            "Only the owner of the tables sees them. For this role the queue is empty, and adding jobs "
            "fails.",
            as_owner,
        )  # fmt: skip
    if locked_out:
        yield Finding(
            "rights", "error", f"the role {role} may not call {some(locked_out)}",
            "Jobs are added and managed through these functions.",
            f"grant execute on all functions in schema {schema.quoted} to {role};",
        )  # fmt: skip
    if len(owners) > 1:
        yield Finding(
            "rights", "warning", f"the tables belong to several roles: {some(owners)}",
            "Row security hides a table's rows from everybody but its owner.",
            f"alter table {schema.quoted}.… owner to {owners[0]}; for those of the others",
        )  # fmt: skip
    elsewhere = sorted({function.owner for function in functions if function.owner not in owners})
    if elsewhere:
        names = [function.name for function in functions if function.owner in elsewhere]
        yield Finding(
            "rights", "warning", f"functions belong to another role than the tables: {some(names)} "
            f"({some(elsewhere)})",
            "They work, but an upgrade of the schema cannot replace them, because only their owner may.",
            f"alter function {schema.quoted}.{names[0]} owner to {owners[0]}; and so on.",
        )  # fmt: skip
    if not denied and not hidden and not locked_out:
        may_create = all(table.may_create for table in tables)
        also = "" if may_create else "; it may not upgrade the schema"
        yield well("rights", f"the role {role} may add and run jobs{also}")


def check_functions(functions: Sequence[FunctionFacts], schema: SchemaName) -> Iterator[Finding]:
    """Whose functions they are."""
    here = {function.name: function for function in functions if function.name in SHARED_FUNCTIONS}
    missing = [name for name in SHARED_FUNCTIONS if name not in here]
    if missing:
        yield Finding(
            "functions", "error", f"functions are missing: {some(missing)}",
            "Jobs are added and managed through them.",
            "Restore them from a backup, or install the schema in a new database and copy them from there "
            "(`graphile-worker migrate --sql` prints them).",
        )  # fmt: skip
    by_origin: dict[Origin, list[str]] = {}
    for name, function in here.items():
        by_origin.setdefault(origin_of(function, schema), []).append(name)
    for origin, names in sorted(by_origin.items()):
        if origin == "Python":
            yield well("functions", f"written by this package: {', '.join(names)}")
        else:
            whose = "of unknown origin" if origin == "unknown" else f"as {origin} installs them"
            yield Finding(
                "functions", "info", f"{whose}: {', '.join(names)}", WEAKNESS[origin],
                "Nothing needs to be done. To use this package's, run the `create or replace function` "
                "statements that `graphile-worker migrate --sql` prints.",
            )  # fmt: skip


def check_indexes(
    indexes: Sequence[IndexFacts], applied: Collection[int], schema: SchemaName
) -> Iterator[Finding]:
    """Indexes that are missing or unfinished."""
    present = {index.name for index in indexes}
    invalid = [index.name for index in indexes if not index.is_valid]
    for name in SHARED_INDEXES:
        if name not in present:
            yield Finding(
                "indexes", "error", f"the index {name} is missing",
                "Fetching or adding jobs reads whole tables, or rows that must be unique can be added twice.",
                f"Create it: {index_statement(name, schema)}",
            )  # fmt: skip
    for number, name in own_indexes():
        if name not in present and number in applied:
            yield Finding(
                "indexes", "warning", f"the index {name} of this package is missing",
                "Somebody dropped it. Jobs of named queues are fetched more slowly.",
                f"Let it be made anew: delete row {number} of {schema.quoted}._private_py_migrations and run "
                "`graphile-worker migrate`.",
            )  # fmt: skip
    if invalid:
        yield Finding(
            "indexes", "error", f"indexes are invalid: {some(invalid)}",
            "Building them was interrupted. They cost time and are not used.",
            "; ".join(f"reindex index concurrently {schema.quoted}.{name}" for name in invalid),
        )  # fmt: skip
    elif not (set(SHARED_INDEXES) - present):
        yield well("indexes", "every index is there")


def check_sequences(sequences: Sequence[SequenceFacts]) -> Iterator[Finding]:
    """Identity columns that are about to run out."""
    for sequence in sequences:
        if sequence.used >= USED_UP:
            yield Finding(
                "sequences", "warning", f"{sequence.name} has used {sequence.used:.0%} of its numbers",
                "When it has none left, adding jobs fails. Functions of older versions use a number up with "
                "every job they add.",
                "Install this package's functions (see `graphile-worker migrate --sql`), or make the "
                "column's rows anew in quiet hours.",
            )  # fmt: skip


def own_indexes() -> list[tuple[int, str]]:
    """The indexes of this package, and the number of the extension that makes each."""
    return [
        (extension.number, name)
        for extension in known_extensions()
        for name in re.findall(
            r"create (?:unique )?index (?:if not exists )?(\w+)", load(extension.path, SchemaName())
        )
    ]


def index_statement(name: str, schema: SchemaName) -> str:
    """How to create a shared index, as the schema's own script does it."""
    script = load("migrations/baseline", schema)
    found = re.search(rf"create index {name} [^;]+;", script)
    if found is not None:
        return " ".join(found[0].replace("create index", "create index concurrently", 1).split())
    constraint = re.search(
        rf"create table (?:if not exists )?(\S+) \([^;]*?(constraint {name} [^,\n]+)", script
    )
    return f"alter table {constraint[1]} add {constraint[2]};" if constraint else name
