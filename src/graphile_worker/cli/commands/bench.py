"""`graphile-worker bench`: how fast is it here, on this database and this machine?"""

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

from ...errors import ConnectionConfigError
from ...options import WorkerOptions
from ..support.client import load_settings, run_async, start_logging
from ..support.output import print_json

if TYPE_CHECKING:
    from ..bench.results import Report
    from ..bench.workbench import Extent

PARTS = ("throughput", "latency", "adding", "growth")


def _parts(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    names = PARTS if value is None else tuple(name.strip() for name in value.split(",") if name.strip())
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        raise click.BadParameter(f"allowed are {', '.join(PARTS)}; given was {value!r}")
    return names


def _plot_file(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix.lower() != ".svg":
        raise click.BadParameter(f"the picture is an SVG; name a file that ends in .svg, not {str(value)!r}")
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder {str(value.parent)!r} does not exist")
    return value


@click.command("bench")
@click.option("-c", "--connection", metavar="URL", help="The database to measure; else as for every command.")
@click.option("--embedded", is_flag=True, help="Measure on a PostgreSQL of its own in a temporary folder.")
@click.option("--jobs", type=click.IntRange(min=10), default=20_000, show_default=True, metavar="N")
@click.option(
    "--rounds",
    type=click.IntRange(1, 99),
    default=3,
    show_default=True,
    metavar="N",
    help="Rounds of each measurement; the median counts.",
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
    "--max-backlog",
    type=click.IntRange(0, 10_000_000),
    default=100_000,
    show_default=True,
    metavar="N",
    help="The largest backlog beside which to measure.",
)
@click.option("--only", callback=_parts, metavar="PARTS", help=f"Only these of {', '.join(PARTS)}.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_plot_file,
    metavar="FILE.svg",
    help="Draw the rate against the backlog.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
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
    **_: Any,
) -> int:
    """Measure how fast jobs are run and added here.

    A scratch schema is made for it and removed at the end; nothing else in the database is touched, but the
    server will be busy, and workers on the same database are woken by the notifications.

    \b
    graphile-worker bench --embedded
    graphile-worker bench -c postgres:///my_database --only throughput,latency
    graphile-worker bench --embedded --max-backlog 1000000 --plot growth.svg
    """
    from ..bench.workbench import Extent

    if plot is not None and ("growth" not in only or not max_backlog):
        raise click.UsageError("--plot shows growth, which is not measured with these options.", ctx)
    settings = load_settings(ctx, {})
    start_logging(settings, quiet=True)
    extent = Extent(jobs=jobs, rounds=rounds, processes=processes, max_backlog=max_backlog)
    with _signals_as_interrupts() as received:
        try:
            with _database(settings.worker, embedded=embedded) as options:
                report = run_async(_measure(options, extent, only))
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
            click.echo(f"\nThe picture is in {plot}.")
    return 0


async def _measure(options: WorkerOptions, extent: Extent, only: tuple[str, ...]) -> Report:
    from ..bench.measuring import measure
    from ..bench.progress import progress_bars

    with progress_bars() as bars:
        return await measure(options, extent, only, bars)


@contextmanager
def _database(options: WorkerOptions, *, embedded: bool) -> Iterator[WorkerOptions]:
    """The options with a connection: the user's own, or that of a server which lives as long as this."""
    if not embedded:
        from ...db.open import resolve_connection

        try:
            resolve_connection(options.connection_string)
        except ConnectionConfigError as error:
            raise ConnectionConfigError(
                f"{error}; or measure on a server of its own with --embedded"
            ) from error
        yield options
        return
    from ...embedded import EmbeddedPostgres

    with (
        tempfile.TemporaryDirectory(prefix="graphile-worker-bench-", ignore_cleanup_errors=True) as folder,
        EmbeddedPostgres(Path(folder) / "postgres") as server,
    ):
        yield options.with_values(connection_string=server.url(), prepared_statements=True)


@contextmanager
def _signals_as_interrupts() -> Iterator[list[int]]:
    """SIGTERM and SIGHUP end a run like Ctrl-C does, so that the schema goes; the list says which it was."""
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
