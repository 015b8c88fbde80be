"""Which runtime installed the functions of the schema: this package, Node, the Rust port, or an unknown one.

Ours are recognised by their text, Node's by digests of the text that releases 0.16 to 0.18 install, and the
Rust port's by distinctive strings. Functions without one are Node's, without quotes around the schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ..database.migrations.own_functions import digest
from ..database.migrations.state import FUNCTION_QUOTE
from ..database.sql import load
from ..values.schema_name import SchemaName
from .facts import FunctionFacts

Origin = Literal["Python", "Node", "Node, before 0.18", "Rust", "Rust 0.14", "unknown"]

SHARED_FUNCTIONS = (
    "add_job",
    "add_jobs",
    "complete_jobs",
    "force_unlock_workers",
    "permanently_fail_jobs",
    "remove_job",
    "reschedule_jobs",
)
NODE_DIGESTS = {
    "add_job": "1ecabfdbec6c38b0",
    "add_jobs": "229178d3e5bf92c2",
    "complete_jobs": "5e7e3965fb1e435c",
    "force_unlock_workers": "bbdfee51d3af80ab",
    "permanently_fail_jobs": "3a0eeb3fa382bc1c",
    "remove_job": "b0fa4ae55fef2bbc",
    "reschedule_jobs": "bcb4e43989faf0a7",
}
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
