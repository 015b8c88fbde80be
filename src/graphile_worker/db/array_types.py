"""Array types of PostgreSQL, registered with the driver so that it does not query the catalogue for them.

The driver's query has unqualified names: `typelem != 0` compares an oid with an integer, for which PostgreSQL
has no exact operator, so one that another role created in `public` would run with our permissions. The query
would also cost each new session a round trip. The oids are fixed: they are part of PostgreSQL's protocol.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

_ARRAYS = (  # oid, name, oid and name of the element's type
    (1000, "_bool", 16, "boolean"),
    (1005, "_int2", 21, "smallint"),
    (1007, "_int4", 23, "integer"),
    (1016, "_int8", 20, "bigint"),
    (1022, "_float8", 701, "double precision"),
    (1185, "_timestamptz", 1184, "timestamp with time zone"),
)
_TYPES = tuple(
    {
        "oid": oid, "ns": "pg_catalog", "name": name, "kind": b"b", "basetype": None, "elemtype": element,
        "elemdelim": b",", "range_subtype": None, "attrtypoids": None, "attrnames": None, "depth": 0,
        "basetype_name": None, "elemtype_name": element_name, "range_subtype_name": None,
    }
    for oid, name, element, element_name in _ARRAYS
)  # fmt: skip


def teach_arrays(connection: Any) -> None:
    """Register the types. If the driver's internals have changed, it queries the catalogue instead."""
    with suppress(AttributeError, KeyError, TypeError):
        connection._protocol.get_settings().register_data_types(_TYPES)
