"""`graphile-worker migrate`, and Node's flag `--schema-only` for the same purpose."""

from __future__ import annotations

import click

from ...config import Settings
from ...json_shapes import migration_as_json
from ...migrate import MigrationReport, migration_sql
from ..support.client import run_async, utils_for
from ..support.command import Output, command


@command("migrate", database=True)
@click.option("--sql", is_flag=True, help="Print the SQL of a new installation; needs no database.")
def migrate_command(settings: Settings, sql: bool) -> Output:
    """Install or upgrade the schema.

    \b
    graphile-worker migrate -c postgres:///my_db
    graphile-worker migrate --sql -s my_schema > install.sql
    """
    if sql:
        script = migration_sql(settings.worker.schema_name)
        return Output(
            lambda: {"schema": settings.worker.schema, "sql": script}, lambda: click.echo(script, nl=False)
        )
    report = run_async(migrate_schema(settings))
    return Output(lambda: migration_as_json(report), lambda: click.echo(describe_report(report)))


async def migrate_schema(settings: Settings) -> MigrationReport:
    """Install or upgrade the schema that the settings name."""
    async with utils_for(settings) as utils:
        return await utils.migrate()


def describe_report(report: MigrationReport) -> str:
    """What was done, on one line."""
    schema = report.schema.quoted
    if report.found_revision is None:
        return f"Schema {schema} installed (revision {report.revision})."
    if report.applied_revisions:
        return f"Schema {schema} upgraded from revision {report.found_revision} to {report.revision}."
    if report.changed:
        return f"Schema {schema} (revision {report.revision}): Python-only objects added."
    return f"Schema {schema} is up to date (revision {report.revision})."
