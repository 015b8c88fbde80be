"""`graphile-worker migrate`, and `--schema-only`, which is the same under Node's name."""

from __future__ import annotations

from typing import Any

import click

from ...config import Settings
from ...migrate import MigrationReport, migration_sql
from ..support.client import load_settings, run_async, start_logging, utils_for
from ..support.output import print_json
from ..support.parameters import command_options


@click.command("migrate")
@command_options
@click.option("--sql", is_flag=True, help="Print the statements of a fresh install; no database is needed.")
@click.pass_context
def migrate_command(ctx: click.Context, /, as_json: bool, sql: bool, **_: Any) -> None:
    """Install the schema, or upgrade it.

    \b
    graphile-worker migrate -c postgres:///my_db
    graphile-worker migrate --sql -s my_schema > install.sql
    """
    settings = load_settings(ctx, {})
    start_logging(settings, quiet=True)
    if sql:
        script = migration_sql(settings.worker.schema_name)
        if as_json:
            print_json({"schema": settings.worker.schema, "sql": script})
        else:
            click.echo(script, nl=False)
        return
    report = run_async(migrate_schema(settings))
    if as_json:
        print_json(
            {
                "schema": report.schema.name,
                "found_revision": report.found_revision,
                "revision": report.revision,
                "applied_revisions": report.applied_revisions,
                "applied_extensions": report.applied_own_objects,
                "has_extensions": report.has_own_objects,
            }
        )
    else:
        click.echo(describe_report(report))


async def migrate_schema(settings: Settings) -> MigrationReport:
    """Install or upgrade the schema that the settings name."""
    async with utils_for(settings) as utils:
        return await utils.migrate()


def describe_report(report: MigrationReport) -> str:
    """One line: what was there, what was done."""
    schema = report.schema.quoted
    if report.found_revision is None:
        return f"Schema {schema} is installed (revision {report.revision})."
    if report.applied_revisions:
        return f"Schema {schema} is upgraded from revision {report.found_revision} to {report.revision}."
    if report.changed:
        return f"Schema {schema} (revision {report.revision}) got the additions for Python."
    return f"Schema {schema} is up to date (revision {report.revision})."
