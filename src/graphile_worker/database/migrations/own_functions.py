"""Replaces functions that an earlier version of this package installed.

The shared ledger has no revision for that: its numbers are Node's. A function is replaced only if its text is
one that this package has installed before. Functions of Node, the Rust port and the database's owner stay.
A further digest here needs a further change in `own_objects.ADDING`, or databases that have all changes keep
the function.
"""

from __future__ import annotations

import hashlib

from ...values.schema_name import SchemaName
from ..connections.connection import Connection
from ..sql import load

EARLIER = {
    "add_job": {
        "2b372891d492cdcb",
        "bce47f1a4e0fee1f",
        "a7782bbb57ae05f1",
        "9711e38717b9e7f2",
        "4baf7505f15e8e73",
    },
    "add_jobs": {
        "2fb445c5b76921df",
        "58dc73ad61d43bda",
        "f5ec9b4b1ef1966c",
        "68143d06310785ac",
        "ed23a30ca2caaf7f",
        "1e77735e6f60ebda",
    },
    "remove_job": {"bab4175ec685d00e", "142bb37bd8c58c32", "4bbcceaaa54881b1", "436deab5204147e8"},
}
"""Digests of the earlier bodies of functions; the present ones are in `migrations/functions`."""


def digest(body: str, schema: SchemaName) -> str:
    """A digest of the text, independent of the schema's name and of white space."""
    text = " ".join(body.replace(schema.quoted, "S").split())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def replace_earlier_functions(connection: Connection, schema: SchemaName) -> list[str]:
    """Replace outdated functions of ours; return their names."""
    replaced = []
    for row in await connection.fetch(load("diagnose/functions", schema), schema.name):
        name = row["name"]
        if digest(row["body"], schema) in EARLIER.get(name, ()):
            await connection.execute(load(f"migrations/functions/{name}", schema))
            replaced.append(name)
    return replaced
