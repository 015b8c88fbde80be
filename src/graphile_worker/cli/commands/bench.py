"""`graphile-worker bench`: measures the speed on this database and this machine."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from ...config import Settings
from ...errors import ConnectionConfigError
from ...process.logs import start_logging
from ...values.options import WorkerOptions
from ..support.client import load_settings, run_async, with_database
from ..support.output import print_json
from ..support.parameters import CONFIG_OPTION, CONNECTION_OPTION, JSON_OPTION, Names

if TYPE_CHECKING:
    from ..bench.results import BenchReport
    from ..bench.workbench import Scale

PARTS = ("throughput", "latency", "adding", "growth")


def _plot_file(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix.lower() != ".svg":
        raise click.BadParameter(f"the chart is an SVG; name a file that ends in .svg, not {str(value)!r}")
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"the directory {str(value.parent)!r} does not exist")
    return value


@click.command("bench")
@CONNECTION_OPTION
@CONFIG_OPTION
@click.option("--embedded", is_flag=True, help="Use an embedded PostgreSQL in a temporary directory.")
@click.option(
    "--jobs",
    type=click.IntRange(min=10),
    default=20_000,
    show_default=True,
    metavar="N",
    help="Jobs per throughput measurement; other parts are scaled accordingly.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 99),
    default=3,
    show_default=True,
    metavar="N",
    help="Rounds per measurement; the result is their median.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Worker processes for throughput and growth.",
)
@click.option(
    "--executor",
    type=click.Choice(["process"]),
    help="Measure throughput in this executor, too, and compare computing tasks with threads.",
)
@click.option(
    "--max-backlog",
    type=click.IntRange(0, 10_000_000),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Largest backlog for growth and latency.",
)
@click.option(
    "--only",
    type=Names(PARTS),
    default=PARTS,
    metavar="PARTS",
    help=f"Parts to measure, separated by commas: {', '.join(PARTS)}.  [default: all]",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_plot_file,
    metavar="FILE.svg",
    help="Write a chart of the rate against the backlog.",
)
@JSON_OPTION
@click.pass_context
def bench_command(
    ctx: click.Context,
    /,
    embedded: bool,
    only: tuple[str, ...],
    plot: Path | None,
    as_json: bool,
    jobs: int,
    rounds: int,
    processes: int,
    max_backlog: int,
    executor: str | None,
    **_: Any,
) -> int:
    """Measure the speed of running and adding jobs.

    It creates a scratch schema and drops it at the end. Nothing else in the database changes, but the server
    is busy, and the notifications wake other workers on the database.

    \b
    graphile-worker bench --embedded
    graphile-worker bench -c postgres:///my_database --only throughput,latency
    graphile-worker bench --embedded --max-backlog 1000000 --plot growth.svg
    graphile-worker bench --embedded --only throughput --executor process
    """
    from ..bench.workbench import Scale

    if plot is not None and ("growth" not in only or not max_backlog):
        raise click.UsageError("--plot shows growth, which these options do not measure.", ctx)
    settings = load_settings(ctx, {})
    start_logging(settings, quiet=True)
    scale = Scale(jobs=jobs, rounds=rounds, processes=processes, max_backlog=max_backlog, executor=executor)
    with _signals_as_interrupts() as received:
        try:
            with _database(settings, embedded=embedded) as options:
                report = run_async(_measure(options, scale, only))
        except KeyboardInterrupt:
            return 128 + (received[0] if received else signal.SIGINT)
    if plot is not None:
        from ..bench.chart import growth_chart

        plot.write_text(growth_chart(report.growth), encoding="utf-8")
    if as_json:
        print_json(asdict(report))
    else:
        from ..bench.tables import print_report

        print_report(report)
        if plot is not None:
            click.echo(f"\nChart written to {plot}.")
    return 0


async def _measure(options: WorkerOptions, scale: Scale, only: tuple[str, ...]) -> BenchReport:
    from ..bench.measuring import measure

    return await measure(options, scale, only)


@contextmanager
def _database(settings: Settings, *, embedded: bool) -> Iterator[WorkerOptions]:
    """The options with a connection to the user's database or to a temporary server."""
    if not embedded:
        from ...database.connections.open import resolve_connection

        options = with_database(settings).worker
        try:
            resolve_connection(options.connection_string)
        except ConnectionConfigError as error:
            raise ConnectionConfigError(f"{error}; or use a temporary server with --embedded") from error
        yield options
        return
    from ...database.embedded import EmbeddedPostgres

    with (
        tempfile.TemporaryDirectory(prefix="graphile-worker-bench-", ignore_cleanup_errors=True) as directory,
        EmbeddedPostgres(Path(directory) / "postgres") as server,
    ):
        yield settings.worker.with_values(connection_string=server.url(), prepared_statements=True)


@contextmanager
def _signals_as_interrupts() -> Iterator[list[int]]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that the schema is dropped; gives the signals received."""
    received: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
