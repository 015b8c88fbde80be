"""Alembic: the schema as a part of your own migrations, and out of the way of autogenerate.

`install` and `uninstall` are called in a revision with `alembic.op`; they work in Alembic's transaction. In
its offline mode they write SQL.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Protocol, TypeAlias

from ..client.sync_worker_utils import SyncWorkerUtils
from ..database.connections.bound import run_blocking
from ..database.connections.errors import sqlstate_of
from ..database.connections.foreign import as_blocking_connection
from ..database.connections.sqlstates import JOBS_EXIST
from ..database.migrations import MigrationReport
from ..database.migrations.script import repeatable_sql, uninstall_sql
from ..errors import MigrationError
from ..values.options import WorkerOptions
from ..values.schema_name import DEFAULT_SCHEMA, SchemaName

__all__ = ["IncludeName", "Operations", "exclude_schema", "install", "uninstall"]

IncludeName: TypeAlias = Callable[[Any, Any, MutableMapping[Any, Any]], bool]
"""The type of Alembic's option `include_name`."""


class Operations(Protocol):
    """`alembic.op`, or an object of `alembic.operations.Operations`."""

    def get_bind(self) -> Any: ...

    def get_context(self) -> Any: ...


def exclude_schema(schema: str = DEFAULT_SCHEMA, also: IncludeName | None = None) -> IncludeName:
    """For `context.configure(include_name=exclude_schema())`: keeps autogenerate away from the schema.

    `also` is an `include_name` of your own, which is asked about all other names.
    """

    def include_name(name: Any, kind: Any, parents: MutableMapping[Any, Any]) -> bool:
        if (name if kind == "schema" else parents.get("schema_name")) == schema:
            return False
        return also is None or also(name, kind, parents)

    return include_name


def install(op: Operations, *, schema: str = DEFAULT_SCHEMA) -> MigrationReport | None:
    """In `upgrade()`: install the schema, or upgrade it to what this version of the package needs.

    Call it in a new revision after an upgrade of the package that asks for it. Returns None in the offline
    mode.
    """
    context = op.get_context()
    if context.as_sql:
        context.impl.static_output(repeatable_sql(SchemaName(schema)))
        return None
    return SyncWorkerUtils.bound(op.get_bind(), options=WorkerOptions(schema=schema)).migrate()


def uninstall(op: Operations, *, schema: str = DEFAULT_SCHEMA, drop_jobs: bool = False) -> None:
    """In `downgrade()`: drop the schema with everything in it.

    Raises MigrationError while there are jobs, unless `drop_jobs`.
    """
    script = uninstall_sql(SchemaName(schema), drop_jobs=drop_jobs)
    context = op.get_context()
    if context.as_sql:
        context.impl.static_output(script)
        return
    try:
        run_blocking(as_blocking_connection(op.get_bind()).execute(script))
    except Exception as error:
        if sqlstate_of(error) != JOBS_EXIST:
            raise
        raise MigrationError(
            f"the schema {SchemaName(schema).quoted} has jobs, so it was not dropped; run or delete them, or "
            "pass drop_jobs=True to uninstall",
            sqlstate=JOBS_EXIST,
        ) from error
