"""The command `graphile-worker`: its flags, its sub-commands and its exit status.

Start-up time matters (`graphile-worker --once` from a script): sub-commands and heavy modules are imported
only when used.
"""

from __future__ import annotations

import gc
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from .support.parameters import (
    ARGUMENTS,
    CONFIG_OPTION,
    CONNECTION_OPTION,
    SCHEMA_OPTION,
    SHARED_FLAGS,
    worker_options,
)

if TYPE_CHECKING:
    from ..config import Host

PROGRAM = "graphile-worker"
COMMANDS: dict[str, tuple[str, str]] = {
    "add": ("add", "Add a job for TASK."),
    "admin": ("admin", "Serve the dashboard and its JSON API."),
    "bench": ("bench", "Measure the speed of adding, running and starting jobs."),
    "cancel": (
        "jobs",
        "Cancel jobs: delete those that are waiting, and stop those that are running.",
    ),
    "cleanup": ("cleanup", "Delete unused queues and task names, or permanently failed jobs."),
    "complete": ("jobs", "Delete jobs as if they had run."),
    "config": ("init", "Show every option, its value, and where the value comes from."),
    "crontab": ("schedules", "Check a crontab, or show when its recurring jobs run next."),
    "demo": ("demo", "Show the dashboard with a lively example, which is removed at the end."),
    "dev": ("dev", "Run a database and a worker that reloads your code, with a live view."),
    "doctor": ("doctor", "Check the connection, the schema, the jobs and the server, and give advice."),
    "errors": (
        "history",
        "List error groups, or with a FINGERPRINT the latest errors of one group and a traceback.",
    ),
    "exporter": (
        "exporter",
        "Serve gauges about the database for Prometheus: ready jobs, their age, jobs by "
        "task and state, workers.",
    ),
    "fail": ("jobs", "Fail jobs permanently."),
    "force-unlock": ("cleanup", "Unlock all jobs and queues that worker pools have locked."),
    "health": ("doctor", "Check that a worker with --http-port is healthy: exit status 0 if so, else 1."),
    "history": ("history", "List the finished jobs that are in the history, the latest first."),
    "init": ("init", "Create tasks/hello.py, a crontab and an entry in .gitignore; overwrites nothing."),
    "limits": ("pause", "Show limits, set their bounds by hand, or reset them to those in the code."),
    "list": ("jobs", "List jobs."),
    "migrate": ("cleanup", "Install or upgrade the schema."),
    "pause": ("pause", "Start no more jobs of a queue, of a task, or at all."),
    "queues": ("pause", "Show named queues, longest first, or set how many jobs of one may run at once."),
    "remove": ("jobs", "Delete jobs by key."),
    "reschedule": ("jobs", "Change the time, priority or attempts of jobs."),
    "resume": ("pause", "End pauses."),
    "retry": ("jobs", "Requeue permanently failed jobs now, with all their attempts."),
    "schedules": (
        "schedules",
        "List recurring jobs: when they run next, when they last ran, which workers have them.",
    ),
    "show": ("history", "Show everything known about jobs, including finished ones in the history."),
    "stack": ("workers", "Show where a running job is now: its call stack, as its worker sees it."),
    "stats": ("stats", "Count jobs by state and task, or show what workers did."),
    "stop": ("workers", "Ask workers of this package to shut down gracefully, as SIGTERM does."),
    "sweep": ("workers", "Recover the jobs of dead workers now."),
    "workers": ("workers", "Show workers and what is paused, or set how many jobs one runs at once."),
}
"""Sub-commands, each with its module in `commands`, and what it does, for `--help`.

That imports none of them; a test compares the texts with their own help.
"""

GROUPS = ("admin", "crontab")
"""Those that have sub-commands themselves."""
RUN_A_WORKER = (
    "Without a command, `graphile-worker` runs a worker; `graphile-worker dev` brings a database too."
)
MEANT = {
    **dict.fromkeys(("run", "start", "work", "worker", "serve"), RUN_A_WORKER),
    "help": "Did you mean `graphile-worker --help`?",
    "version": "Did you mean `graphile-worker --version`?",
    **dict.fromkeys(("install", "setup", "upgrade", "schema"), "Did you mean 'migrate'?"),
    **dict.fromkeys(("delete", "rm", "revoke", "purge"), "Did you mean 'cancel'?"),
    **dict.fromkeys(("redrive", "requeue"), "Did you mean 'retry'?"),
    **dict.fromkeys(("enqueue", "push"), "Did you mean 'add'?"),
    **dict.fromkeys(("stop", "hold", "quiet"), "Did you mean 'pause'?"),
    **dict.fromkeys(("unpause", "continue"), "Did you mean 'resume'?"),
    **dict.fromkeys(("inspect", "active"), "Did you mean 'workers'?"),
    **dict.fromkeys(("dashboard", "web", "ui", "monitor", "flower"), "Did you mean 'admin'?"),
}
"""Commands of other job queues, and ours for the same purpose."""
MEANT_FLAGS = {
    **dict.fromkeys(("--concurrency", "--workers", "--threads"), "--jobs"),
    **dict.fromkeys(("--database", "--database-url", "--url", "--db", "--dsn"), "--connection"),
    **dict.fromkeys(("--task-directory", "--tasks-dir"), "--tasks"),
    **dict.fromkeys(("--application", "-A"), "--app"),
    "--burst": "--once",
    "--reload": "--watch",
}


class LazyGroup(click.Group):
    """A group that imports a command when it is called or listed in the help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)  # for `--watch`, which repeats the command in a child
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            meant = MEANT_FLAGS.get(error.option_name)
            if meant is None:
                raise
            raise click.UsageError(
                f"No such option {error.option_name!r}. Did you mean {meant!r}?", ctx
            ) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, COMMANDS))
        rows = [
            (name, click.Command(name, help=summary).get_short_help_str(limit))
            for name, (_, summary) in sorted(COMMANDS.items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        from importlib import import_module

        kind = "group" if cmd_name in GROUPS else "command"
        module = import_module(f".commands.{COMMANDS[cmd_name][0]}", __package__)
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_{kind}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if re.search(r"[:=@]", args[0]):  # may contain a password, so it is not repeated
            ctx.fail("Not a command; to give a connection string, use -c/--connection.")
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from ..values.text import closest

            near = closest(args[0], COMMANDS)
            hint = MEANT.get(args[0]) or (f"Did you mean {near!r}?" if near else "")
            ctx.fail(f"No such command {args[0]!r}. {hint}".rstrip())
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(version(PROGRAM))
        ctx.exit()


@click.group(
    cls=LazyGroup,
    name=PROGRAM,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Options can also be set in a configuration file or in the environment; "
    "`graphile-worker config` shows every value and its source.",
)
@CONNECTION_OPTION
@SCHEMA_OPTION
@CONFIG_OPTION
@worker_options
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def graphile_worker(ctx: click.Context, /, **values: Any) -> int:
    """Run jobs from a PostgreSQL database.

    Without a COMMAND this runs a worker: it installs or upgrades the schema, loads tasks from ./tasks and
    recurring jobs from ./crontab, and runs jobs until it is stopped.

    \b
    graphile-worker demo                         look at the dashboard with a lively example
    graphile-worker dev                          start a database and a worker for development
    graphile-worker -c postgres:///my_db -j 10   run ten jobs at a time
    graphile-worker --app shop.worker:app        run the tasks of an App
    graphile-worker --once                       run all ready jobs, then exit
    """
    if ctx.invoked_subcommand is not None:
        _refuse_worker_flags(ctx)
        return 0
    from .run import run_command

    return run_command(ctx, values)


def _refuse_worker_flags(ctx: click.Context) -> None:
    """Refuse flags before a sub-command where they would have no effect."""
    for parameter in ctx.command.params:
        name = parameter.name or ""
        given = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if not given or not parameter.expose_value:
            continue
        flag = max(parameter.opts, key=len)
        if ctx.invoked_subcommand == "demo":
            raise click.UsageError(
                f"{flag} has no effect on 'demo', which starts its own temporary database.", ctx
            )
        if name not in SHARED_FLAGS:
            raise click.UsageError(
                f"{flag} is for running a worker and has no effect on {ctx.invoked_subcommand!r}.", ctx
            )


def main(arguments: list[str] | None = None) -> None:
    gc.disable()  # start-up allocates no garbage; enabled again before work begins
    try:
        status = run_main(arguments)
    finally:
        gc.freeze()  # skips the final collection, a fifth of a short run
    sys.exit(status)


def run_main(arguments: list[str] | None = None, host: Host | None = None) -> int:
    """Run the command; returns 0 (done), 1 (error), 2 (wrong usage) or 57 (breaking migration).

    `host` is the framework whose command this is a part of.
    """
    from ..runner.process.error_report import reported

    def run() -> int:
        status = graphile_worker.main(arguments, prog_name=PROGRAM, standalone_mode=False, obj=host)
        return status if isinstance(status, int) else 0

    try:
        return reported(run)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
