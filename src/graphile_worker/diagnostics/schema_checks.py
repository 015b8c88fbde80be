"""Checks of the schema: revision, permissions, which runtime installed the functions, indexes.

Our functions are recognised by their text, Node's by digests of the text that releases 0.16 to 0.18 install,
and the Rust port's by distinctive strings. Functions without one are Node's, without quotes around the
schema.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from ..database.migrations import OWN_FILES, SUPPORTED_REVISION, Change
from ..database.migrations.own_functions import digest
from ..database.migrations.own_objects import missing_changes
from ..database.migrations.state import FUNCTION_QUOTE, SchemaState
from ..database.sql import load
from ..values.schema_name import SchemaName
from .facts import FunctionFacts, IndexFacts, SequenceFacts, TableRights
from .finding import Finding, some, well

Origin = Literal["Python", "Node", "Node, before 0.18", "Rust", "Rust 0.14", "unknown"]

NODE_DIGESTS = {
    "add_job": "1ecabfdbec6c38b0",
    "add_jobs": "229178d3e5bf92c2",
    "complete_jobs": "5e7e3965fb1e435c",
    "force_unlock_workers": "bbdfee51d3af80ab",
    "permanently_fail_jobs": "3a0eeb3fa382bc1c",
    "remove_job": "b0fa4ae55fef2bbc",
    "reschedule_jobs": "bcb4e43989faf0a7",
}
SHARED_FUNCTIONS = tuple(NODE_DIGESTS)
OLDER_NODE_DIGESTS = {"add_job": "a9428b32abcf4f3f", "add_jobs": "f65383932eb3d2d5"}
RUST_STRINGS = {"add_job": "GWNOR", "add_jobs": "pg_advisory_xact_lock"}
RETIREMENTS = "_private_job_retirements"
"""Where Rust 0.14 marks locked jobs that were replaced, removed or given up; its functions write there."""


def has_retirements(functions: Iterable[FunctionFacts]) -> bool:
    """Whether functions of the schema write the marks of Rust 0.14."""
    return any(RETIREMENTS in function.body for function in functions)


def origin_of(function: FunctionFacts, schema: SchemaName, *, keeps_marks: bool) -> Origin:
    """Which runtime installed this function. `keeps_marks`: whether there are functions of Rust 0.14."""
    name, body = function.name, function.body
    found = digest(body, schema)
    if found == digest(_own_body(name, schema), schema):
        return "Python"
    if found == NODE_DIGESTS.get(name):
        return "Node"
    if found == OLDER_NODE_DIGESTS.get(name):
        return "Node, before 0.18"
    if (
        (name in RUST_STRINGS and RUST_STRINGS[name] in body)
        or RETIREMENTS in body
        or digest(body.replace(f"{schema.name}.", f"{schema.quoted}."), schema) == NODE_DIGESTS.get(name)
    ):
        return "Rust 0.14" if keeps_marks else "Rust"
    return "unknown"


def _own_body(name: str, schema: SchemaName) -> str:
    return load(f"migrations/functions/{name}", schema).split(FUNCTION_QUOTE)[1]


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
FOR_AUTOSCALERS = {"_private_py_ready_jobs", "_private_py_oldest_ready_age"}
"""Functions that neither workers nor clients call; the right to execute them is granted by hand."""
WITHOUT_OWN = (
    "It may add and run jobs. But its workers cannot see pauses of tasks and cancelled jobs, cannot run "
    "limited tasks, and do not recover the jobs of dead workers."
)
RUST_REGISTER = "_private_workers"
WITHOUT_REGISTER = (
    "Rust workers cannot see that its workers are alive. Those with recovery on take jobs that run longer "
    "than their threshold, five minutes by default."
)
WEAKNESS: dict[Origin, str] = {
    "Python": "",
    "Node": "A keyed add can get lost (returning no job) if a worker takes the same job at that moment. "
    "Everything else works.",
    "Node, before 0.18": "A keyed add can get lost if a worker takes the same job at that moment, and every "
    "add consumes values of the small identity columns of tasks and queues.",
    "Rust": "A keyed add fails with the code GWNOR if a worker takes the same job at that moment, and every "
    "add consumes values of the small identity columns of tasks and queues.",
    "Rust 0.14": "A keyed add fails with the code GWNOR if a worker takes the same job at that moment. "
    "Everything else works.",
    "unknown": "They come from another version or were changed by hand.",
}
REPLACE_THEM = (
    "Nothing to do. To use this package's functions, run the `create or replace function` statements that "
    "`graphile-worker migrate --sql` prints."
)
KEEP_THEM = (
    "Nothing to do. Do not replace them with this package's functions: those do not mark jobs that were "
    "replaced, removed or given up, so Rust workers would return them."
)


def check_schema(state: SchemaState, schema: SchemaName) -> Iterator[Finding]:
    """Whether it is installed, and its revision."""
    migrate = "Run `graphile-worker migrate` as the role that owns the schema."
    if state.revision is None:
        yield Finding(
            "schema", "error", f"the schema {schema.quoted} is not installed in this database",
            "There is no queue here. Workers install the schema when they start, clients do not.",
            "Run `graphile-worker migrate`; or name the right database (-c) and schema (-s).",
        )  # fmt: skip
    elif state.breaking_revision is not None and state.breaking_revision > SUPPORTED_REVISION:
        yield Finding(
            "schema", "error", f"the schema is at revision {state.revision}, this package supports "
            f"{SUPPORTED_REVISION}",
            "A newer worker applied a breaking migration.",
            "Install a newer version of graphile-worker.",
        )  # fmt: skip
    elif state.revision > state.known_revision:
        yield Finding(
            "schema", "warning", f"the schema is at revision {state.revision}, this package supports "
            f"{state.known_revision}",
            "A newer worker applied migrations that are not breaking.",
            "Consider a newer version of graphile-worker.",
        )  # fmt: skip
    elif state.revision < SUPPORTED_REVISION:
        yield Finding(
            "schema", "error", f"the schema is at revision {state.revision}, {SUPPORTED_REVISION} is needed",
            "An older version installed it. A worker with the permissions upgrades it when it starts.",
            migrate,
        )  # fmt: skip
    else:
        later = state.rust_revisions
        whose = f" ({' and '.join(map(str, later))} of Rust)" if later else ""
        yield well("schema", f"schema {schema.quoted} at revision {state.revision}{whose}")


def check_own_objects(applied: Collection[int]) -> Iterator[Finding]:
    """Whether the Python-only objects exist, and whether other roles can misuse one of the functions."""
    missing = [change.label for change in missing_changes(applied)]
    if applied and Change.SAFE_OPERATORS.label in missing:
        missing.remove(Change.SAFE_OPERATORS.label)
        yield Finding(
            "schema", "error", "functions of an earlier version call an operator that others can replace",
            "A role that may create objects in a schema of the search_path, such as `public`, can run code "
            "with the workers' rights.",
            "Run `graphile-worker migrate` as the role that owns the schema.",
        )  # fmt: skip
    if missing:
        yield Finding(
            "schema", "warning", f"Python-only objects are missing: {some(missing)}",
            "Jobs run without them, but named queues are slower, orphaned jobs come back after hours "
            "instead of seconds, and workers may miss pauses of tasks and cancelled jobs.",
            "Run `graphile-worker migrate` as the role that owns the schema.",
        )  # fmt: skip


def _consequence(tables: Sequence[str], otherwise: str) -> str:
    """What it means that the role cannot use these tables."""
    if list(tables) == [RUST_REGISTER]:
        return WITHOUT_REGISTER
    own = all(name.startswith("_private_py_") or name == RUST_REGISTER for name in tables)
    return WITHOUT_OWN if own else otherwise


def check_rights(
    tables: Sequence[TableRights], functions: Sequence[FunctionFacts], role: str, schema: SchemaName
) -> Iterator[Finding]:
    owners = sorted({table.owner for table in tables})
    as_owner = f"Connect as {some(owners)}, who owns the tables; or: grant {owners[0]} to {role};"
    if not all(table.may_enter for table in tables):
        yield Finding(
            "rights", "error", f"role {role} may not use the schema {schema.quoted}",
            "It can neither add nor run jobs.", as_owner,
        )  # fmt: skip
        return
    denied = [table.name for table in tables if not table.may_use]
    hidden = [table.name for table in tables if table.row_security]
    locked_out = [
        function.name
        for function in functions
        if not function.may_execute and function.name not in FOR_AUTOSCALERS
    ]
    if denied:
        yield Finding(
            "rights", "error", f"role {role} may not read and write {some(denied)}",
            _consequence(denied, "It can neither add nor run jobs."), as_owner,
        )  # fmt: skip
    elif hidden:
        yield Finding(
            "rights", "error", f"row-level security hides the rows of {some(hidden)} from role {role}",
            _consequence(
                hidden, "Only the owner of the tables can read them. For this role the queue is empty, and "
                "adding jobs fails."
            ),
            as_owner,
        )  # fmt: skip
    if locked_out:
        yield Finding(
            "rights", "error", f"role {role} may not call {some(locked_out)}",
            "Jobs are added and managed through these functions.",
            f"grant execute on all functions in schema {schema.quoted} to {role};",
        )  # fmt: skip
    if len(owners) > 1:
        yield Finding(
            "rights", "warning", f"the tables belong to several roles: {some(owners)}",
            "Row-level security hides a table's rows from all roles but its owner.",
            f"alter table {schema.quoted}.… owner to {owners[0]}; for each table of another role",
        )  # fmt: skip
    elsewhere = sorted({function.owner for function in functions if function.owner not in owners})
    if elsewhere:
        names = [function.name for function in functions if function.owner in elsewhere]
        yield Finding(
            "rights", "warning", f"functions and tables have different owners: {some(names)} "
            f"({some(elsewhere)})",
            "They work, but only their owner can replace them, so an upgrade of the schema fails.",
            f"alter function {schema.quoted}.{names[0]} owner to {owners[0]}; and so on.",
        )  # fmt: skip
    if not denied and not hidden and not locked_out:
        may_create = all(table.may_create for table in tables)
        also = "" if may_create else ", but not upgrade the schema"
        yield well("rights", f"role {role} may add and run jobs{also}")


def check_functions(functions: Sequence[FunctionFacts], schema: SchemaName) -> Iterator[Finding]:
    """Which runtime installed the functions."""
    here = {function.name: function for function in functions if function.name in SHARED_FUNCTIONS}
    missing = [name for name in SHARED_FUNCTIONS if name not in here]
    if missing:
        yield Finding(
            "functions", "error", f"functions are missing: {some(missing)}",
            "Jobs are added and managed through them.",
            "Restore them from a backup, or run their `create or replace function` statements, which "
            "`graphile-worker migrate --sql` prints.",
        )  # fmt: skip
    keeps_marks = has_retirements(functions)
    by_origin: dict[Origin, list[str]] = {}
    for name, function in here.items():
        by_origin.setdefault(origin_of(function, schema, keeps_marks=keeps_marks), []).append(name)
    for origin, names in sorted(by_origin.items()):
        if origin == "Python":
            yield well("functions", f"installed by this package: {', '.join(names)}")
        else:
            whose = "of unknown origin" if origin == "unknown" else f"as {origin} installs them"
            yield Finding(
                "functions", "info", f"{whose}: {', '.join(names)}", WEAKNESS[origin],
                KEEP_THEM if keeps_marks else REPLACE_THEM,
            )  # fmt: skip


def check_indexes(
    indexes: Sequence[IndexFacts], applied: Collection[int], schema: SchemaName
) -> Iterator[Finding]:
    """Missing or invalid indexes."""
    present = {index.name for index in indexes}
    invalid = [index.name for index in indexes if not index.is_valid]
    for name in SHARED_INDEXES:
        if name not in present:
            yield Finding(
                "indexes", "error", f"the index {name} is missing",
                "Fetching or adding jobs scans whole tables, or duplicates of unique rows can be added.",
                f"Create it: {index_statement(name, schema)}",
            )  # fmt: skip
    for name, changes in own_indexes().items():
        if name not in present and changes <= set(applied):
            yield Finding(
                "indexes", "warning", f"the Python-only index {name} is missing",
                "It was dropped. Statements that use it are slower.",
                f"Recreate it: delete row {min(changes)} of {schema.quoted}._private_py_migrations and run "
                "`graphile-worker migrate`.",
            )  # fmt: skip
    if invalid:
        yield Finding(
            "indexes", "error", f"indexes are invalid: {some(invalid)}",
            "Their creation was interrupted. They slow down writes and are not used.",
            "; ".join(f"reindex index concurrently {schema.quoted}.{name}" for name in invalid),
        )  # fmt: skip
    elif not (set(SHARED_INDEXES) - present):
        yield well("indexes", "all indexes are present")


def check_sequences(
    sequences: Sequence[SequenceFacts], functions: Sequence[FunctionFacts] = ()
) -> Iterator[Finding]:
    """Identity columns that are running out of values."""
    renumber = "renumber the rows during maintenance."
    install = "Install this package's functions (see `graphile-worker migrate --sql`), or " + renumber
    advice = renumber.capitalize() if has_retirements(functions) else install
    for sequence in sequences:
        if sequence.used >= USED_UP:
            yield Finding(
                "sequences", "warning", f"{sequence.name} has used {sequence.used:.0%} of its values",
                "When none is left, adding jobs fails. Functions of older versions consume a value with "
                "every job they add.",
                advice,
            )  # fmt: skip


def own_indexes() -> dict[str, frozenset[Change]]:
    """The Python-only indexes, and the changes of the file that creates each."""
    return {
        name: file.changes
        for file in OWN_FILES
        for name in re.findall(
            r"create (?:unique )?index (?:if not exists )?(\w+)", load(file.path, SchemaName())
        )
    }


def index_statement(name: str, schema: SchemaName) -> str:
    """The statement that creates a shared index, from the schema's script."""
    script = load("migrations/baseline", schema)
    found = re.search(rf"create index {name} [^;]+;", script)
    if found is not None:
        return " ".join(found[0].replace("create index", "create index concurrently", 1).split())
    constraint = re.search(
        rf"create table (?:if not exists )?(\S+) \([^;]*?(constraint {name} [^,\n]+)", script
    )
    return f"alter table {constraint[1]} add {constraint[2]};" if constraint else name
