"""Reading everything the catalogue says of a schema into plain values, so that installs can be compared."""

from __future__ import annotations

from typing import Any

from graphile_worker.values.schema_name import SchemaName

COLUMNS = """
select class.relname::text, array_agg(
    concat_ws(' ', attribute.attname, format_type(attribute.atttypid, attribute.atttypmod),
        case when attribute.attnotnull then 'not null' end,
        case attribute.attidentity when 'a' then 'identity always' when 'd' then 'identity by default' end,
        case attribute.attgenerated when 's' then 'stored' end,
        '= ' || pg_get_expr(defaults.adbin, defaults.adrelid))
    order by attribute.attnum)
from pg_class as class
join pg_attribute as attribute on attribute.attrelid = class.oid and attribute.attnum > 0
left join pg_attrdef as defaults on defaults.adrelid = class.oid and defaults.adnum = attribute.attnum
where class.relnamespace = $1 and class.relkind in ('r', 'v', 'c', 'p', 'm', 'f')
    and not attribute.attisdropped
group by class.relname
"""

CONSTRAINTS = """
select class.relname || '.' || constraints.conname, pg_get_constraintdef(constraints.oid)
from pg_constraint as constraints
join pg_class as class on class.oid = constraints.conrelid
where constraints.connamespace = $1 and constraints.contype <> 'n'
"""

INDEXES = """
select class.relname::text, replace(pg_get_indexdef(class.oid), $2, 'S')
from pg_class as class
where class.relnamespace = $1 and class.relkind = 'i'
"""

SEQUENCES = """
select class.relname::text, concat_ws(' ', format_type(sequence.seqtypid, null), sequence.seqstart,
    sequence.seqincrement, sequence.seqcache, sequence.seqcycle,
    (select owner.relname || '.' || attribute.attname
     from pg_depend as depends
     join pg_class as owner on owner.oid = depends.refobjid
     join pg_attribute as attribute
         on attribute.attrelid = owner.oid and attribute.attnum = depends.refobjsubid
     where depends.objid = class.oid and depends.deptype = 'i' and depends.classid = 'pg_class'::regclass))
from pg_sequence as sequence
join pg_class as class on class.oid = sequence.seqrelid
where class.relnamespace = $1
"""

FUNCTIONS = """
select procedure.proname || '(' || replace(pg_get_function_arguments(procedure.oid), $2, 'S') || ')',
    concat_ws(' ', replace(pg_get_function_result(procedure.oid), $2, 'S'), language.lanname,
        case procedure.provolatile when 'v' then 'volatile' else 'not volatile' end,
        case when procedure.proisstrict then 'strict' end,
        case when procedure.prosecdef then 'definer' else 'invoker' end,
        case procedure.proparallel when 'u' then 'unsafe' else 'parallel' end,
        procedure.proconfig, procedure.proacl)
from pg_proc as procedure
join pg_language as language on language.oid = procedure.prolang
where procedure.pronamespace = $1
"""

SECURITY = """
select class.relname::text, concat_ws(' ', class.relrowsecurity, class.relforcerowsecurity, class.relacl,
    class.reloptions)
from pg_class as class
where class.relnamespace = $1 and class.relkind in ('r', 'v')
"""

VIEWS = "select viewname::text, replace(definition, $2, 'S') from pg_views where schemaname = $3"

ODDITIES = """
select 'trigger ' || tgname from pg_trigger join pg_class on pg_class.oid = tgrelid where relnamespace = $1
union all select 'policy ' || polname from pg_policy join pg_class on pg_class.oid = polrelid
    where relnamespace = $1
union all select 'comment ' || description from pg_description
    where objoid in (select oid from pg_class where relnamespace = $1
        union all select oid from pg_proc where pronamespace = $1)
union all select 'type ' || typname from pg_type
    where typnamespace = $1 and typtype not in ('c', 'b')
"""

BODIES = r"""
select proname::text,
    regexp_replace(regexp_replace(replace(prosrc, $2, 'S'), '--[^\n]*', '', 'g'), '\s+', ' ', 'g')
from pg_proc where pronamespace = $1
"""
"""Without comments and white space, which change without a number."""


async def read_catalogue(connection: Any, schema: str = "graphile_worker") -> dict[str, Any]:
    """Tables, types, constraints, indexes, sequences, functions, security and ledger of one schema."""
    namespace, quoted = await connection.fetchrow(
        "select oid, quote_ident(nspname) from pg_namespace where nspname = $1", schema
    )

    async def pairs(query: str, *arguments: Any) -> dict[str, Any]:
        return dict(tuple(row) for row in await connection.fetch(query, namespace, *arguments))

    ledger = await connection.fetch(f"select id, breaking from {quoted}.migrations order by id")
    views = await connection.fetch(VIEWS.replace("$2", "$1").replace("$3", "$2"), quoted, schema)
    return {
        "columns": await pairs(COLUMNS),
        "constraints": await pairs(CONSTRAINTS),
        "indexes": await pairs(INDEXES, quoted),
        "sequences": await pairs(SEQUENCES),
        "functions": await pairs(FUNCTIONS, quoted),
        "bodies": await pairs(BODIES, SchemaName(schema).quoted),
        "security": await pairs(SECURITY),
        "views": dict(tuple(row) for row in views),
        "oddities": sorted(row[0] for row in await connection.fetch(ODDITIES, namespace)),
        "ledger": [tuple(row) for row in ledger],
    }
