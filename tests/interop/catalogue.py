"""What the server's catalogue says about one schema, as plain text rows that two installs can be compared by.

Function bodies are left out, since each worker writes its own. So is all that carries our prefix, and the
Rust worker's register, which Node does not install.
"""

from __future__ import annotations

from typing import Any

from support.rust_port import REGISTER_NAMES

OUR_PREFIX = "_private_py_"

QUERIES = {
    "schema": """
        SELECT nspname, nspacl::text FROM pg_namespace WHERE oid = $1
    """,
    "relations": """
        SELECT relname, relkind, relpersistence, relrowsecurity, relforcerowsecurity, relreplident,
               reloptions::text, relacl::text, relispartition
        FROM pg_class WHERE relnamespace = $1
    """,
    "columns": """
        SELECT c.relname, row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum) AS position, a.attname,
               format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
               pg_get_expr(d.adbin, d.adrelid), a.attcollation::regcollation::text, a.attacl::text
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = $1
    """,
    # Not-null constraints have rows (and names) only since PostgreSQL 18; the columns tell of them on all.
    "constraints": """
        SELECT t.relname, o.conname, o.contype, pg_get_constraintdef(o.oid), o.convalidated
        FROM pg_constraint o JOIN pg_class t ON t.oid = o.conrelid
        WHERE o.connamespace = $1 AND o.contype <> 'n'
    """,
    "indexes": """
        SELECT i.relname, pg_get_indexdef(x.indexrelid), x.indisunique, x.indisprimary, x.indisvalid,
               t.relname, i.reloptions::text
        FROM pg_index x
        JOIN pg_class i ON i.oid = x.indexrelid
        JOIN pg_class t ON t.oid = x.indrelid
        WHERE i.relnamespace = $1
    """,
    "sequences": """
        SELECT c.relname, format_type(s.seqtypid, NULL), s.seqstart, s.seqincrement, s.seqmin, s.seqmax,
               s.seqcache, s.seqcycle, t.relname, a.attname, d.deptype
        FROM pg_sequence s
        JOIN pg_class c ON c.oid = s.seqrelid
        LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refobjsubid > 0
        LEFT JOIN pg_class t ON t.oid = d.refobjid
        LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
        WHERE c.relnamespace = $1
    """,
    "views": """
        SELECT relname, pg_get_viewdef(oid) FROM pg_class WHERE relnamespace = $1 AND relkind IN ('v', 'm')
    """,
    "types": """
        SELECT typname, typtype, typcategory, typelem::regtype::text FROM pg_type WHERE typnamespace = $1
    """,
    "functions": """
        SELECT p.proname, pg_get_function_identity_arguments(p.oid), pg_get_function_arguments(p.oid),
               pg_get_function_result(p.oid), l.lanname, p.prokind, p.provolatile, p.proisstrict, p.prosecdef,
               p.proparallel, p.proleakproof, p.proretset, p.proconfig::text, p.proacl::text
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.pronamespace = $1
    """,
    "triggers": """
        SELECT t.relname, g.tgname, pg_get_triggerdef(g.oid)
        FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid
        WHERE t.relnamespace = $1
    """,
    "policies": """
        SELECT t.relname, p.polname FROM pg_policy p JOIN pg_class t ON t.oid = p.polrelid
        WHERE t.relnamespace = $1
    """,
    "rules": """
        SELECT t.relname, r.rulename FROM pg_rewrite r JOIN pg_class t ON t.oid = r.ev_class
        WHERE t.relnamespace = $1
    """,
    "comments": """
        SELECT c.relname, d.objsubid, d.description
        FROM pg_description d JOIN pg_class c ON c.oid = d.objoid AND d.classoid = 'pg_class'::regclass
        WHERE c.relnamespace = $1
        UNION ALL
        SELECT p.proname, 0, d.description
        FROM pg_description d JOIN pg_proc p ON p.oid = d.objoid AND d.classoid = 'pg_proc'::regclass
        WHERE p.pronamespace = $1
    """,
}

BODIES = """
    SELECT proname AS name, oid::regprocedure::text AS signature, md5(prosrc) AS body
    FROM pg_proc WHERE pronamespace = $1::regnamespace
"""


async def read(connection: Any, schema: str = "graphile_worker") -> dict[str, list[str]]:
    """The kinds of objects, each with its sorted rows; what we add under our own prefix is not among them."""
    namespace = await connection.fetchval("SELECT oid FROM pg_namespace WHERE nspname = $1", schema)
    assert namespace is not None, f"there is no schema {schema}"
    return {
        kind: sorted(
            " | ".join(str(value) for value in row.values())
            for row in await connection.fetch(query, namespace)
            if not is_ours(row[0])
        )
        for kind, query in QUERIES.items()
    }


def is_ours(name: str) -> bool:
    """Whether Node installs no such object; an array type has one more underscore before its name."""
    return any(
        each.startswith(OUR_PREFIX) or each in REGISTER_NAMES for each in (name, name.removeprefix("_"))
    )


async def function_bodies(connection: Any, schema: str = "graphile_worker") -> dict[str, str]:
    """The signature of each function that Node installs too, with a digest of its body."""
    rows = await connection.fetch(BODIES, f'"{schema}"')
    return {row["signature"]: row["body"] for row in rows if not is_ours(row["name"])}


async def ledger(connection: Any, schema: str = "graphile_worker") -> list[tuple[int, bool]]:
    """The rows of the ledger: number, and whether it is marked as breaking."""
    rows = await connection.fetch(f'SELECT id, breaking FROM "{schema}".migrations ORDER BY id')
    return [(row["id"], row["breaking"]) for row in rows]


BREAKING = {1, 3, 11, 13, 14, 16, 19}
FULL_LEDGER = [(number, number in BREAKING) for number in range(1, 21)]
