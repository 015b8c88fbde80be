"""`graphile-worker exporter`: gauges about the database for Prometheus, without a worker."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection
from importlib.resources import files
from typing import Any

import click

from ...config import Settings
from ...errors import ConfigError
from ...runner.process.logs import start_logging
from ...runner.process.signals import end_by_signal, signal_received
from ...values import __version__
from ...values.options import WorkerOptions
from ..support.client import load_settings, run_async, utils_for, with_app, with_database
from ..support.output import print_json
from ..support.parameters import APP_OPTION, CONFIG_OPTION, CONNECTION_OPTION, JSON_OPTION, SCHEMA_OPTION


@click.command("exporter")
@CONNECTION_OPTION
@SCHEMA_OPTION
@CONFIG_OPTION
@APP_OPTION
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve /metrics, /livez and /readyz on this port; 0 is any free one.",
)
@click.option("--http-address", metavar="ADDRESS", help="Address to serve on.  [default: every address]")
@click.option(
    "--every",
    type=click.FloatRange(min=1),
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="How often to read the database.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Count the waiting jobs of this named queue. Repeatable.  [default: all, if they are few]",
)
@click.option(
    "--max-tasks",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    metavar="N",
    help="Tasks with a label of their own; the others are counted together.",
)
@click.option(
    "--dashboard", "printed", flag_value="dashboard", help="Print a dashboard for Grafana, and exit."
)
@click.option("--alerts", "printed", flag_value="alerts", help="Print alert rules for Prometheus, and exit.")
@JSON_OPTION
@click.pass_context
def exporter_command(
    ctx: click.Context,
    /,
    http_port: int | None,
    http_address: str | None,
    every: float,
    queues: tuple[str, ...],
    max_tasks: int,
    printed: str | None,
    as_json: bool,
    **_: Any,
) -> int:
    """Serve gauges about the database for Prometheus: ready jobs, their age, jobs by task and state, workers.

    They are the same for all workers, so one process serves them: this one, or a worker with
    --database-metrics. It reads the database at intervals, at a cost that does not depend on the number of
    jobs; a scrape reads memory. The schema is not changed. With --json it prints the gauges once, and exits.

    \b
    graphile-worker exporter --http-port 9464
    graphile-worker exporter --dashboard > graphile-worker.json
    graphile-worker exporter --alerts > graphile-worker.yml
    """
    if printed == "dashboard":
        from ...metrics.grafana import dashboard_text

        click.echo(dashboard_text(), nl=False)
        return 0
    if printed == "alerts":
        click.echo(files("graphile_worker.metrics").joinpath("alerts.yml").read_text("utf-8"), nl=False)
        return 0
    settings = load_settings(ctx, {"http_port": http_port, "http_address": http_address})
    start_logging(settings, quiet=as_json)
    settings = with_database(with_app(settings)[0], quiet=as_json)
    if as_json:
        print_json(run_async(_read(settings, queues, max_tasks)))
        return 0
    options = settings.process
    if options.http_port is None:
        raise click.UsageError("Give --http-port, the port to serve on.", ctx)
    values = {"every": every, "queues": queues, "max_tasks": max_tasks}
    return end_by_signal(run_async(_export(settings.worker, options.http_address, options.http_port, values)))


async def _export(options: WorkerOptions, address: str, port: int, values: dict[str, Any]) -> signal.Signals:
    """Serve until a signal arrives, and return it. `values` are arguments of the reader."""
    stopped = asyncio.ensure_future(signal_received((signal.SIGINT, signal.SIGTERM)))
    await asyncio.sleep(0)  # from now on signals are handled
    try:
        from ...metrics.database_metrics import collector_of, own_reader
        from ...metrics.prometheus import REGISTRY
    except ImportError as error:
        raise ConfigError(str(error)) from error
    from ...metrics.catalogue import INFO
    from ...metrics.families import single
    from ...runner.process.http_server import (
        HttpServer,
        Request,
        Response,
        bind,
        json_response,
        logger,
        url_of,
    )
    from ...runner.process.probes import METRICS_TYPE, nothing_here, own_metrics

    async def answer(request: Request) -> Response:
        match request.path:
            case "/metrics":
                return Response(200, await own_metrics() or b"", METRICS_TYPE)
            case "/livez":
                return json_response(200, {"status": "ok", "problems": []})
            case "/readyz":
                problems = [] if reader.is_up else ["the database does not answer"]
                status = "unavailable" if problems else "ok"
                return json_response(503 if problems else 200, {"status": status, "problems": problems})
        return nothing_here()

    listening = bind(address, port)
    reader = own_reader(options, **values)
    REGISTRY.register(collector_of(reader, [single(INFO, 1, __version__, options.schema)]))
    server = HttpServer(answer)
    logger.info("serving health checks and metrics at %s", url_of(listening))
    await server.open(listening)
    reader.start()
    try:
        return await stopped
    finally:
        await reader.stop()
        await server.close()


async def _read(settings: Settings, queues: Collection[str], max_tasks: int) -> dict[str, Any]:
    """The gauges by name, each with its values and their labels."""
    from ...metrics.catalogue import PREFIX
    from ...metrics.database_reader import read_ready_gauges, read_table_gauges

    async with utils_for(settings) as utils, utils.pool.acquire() as connection:
        ready = await read_ready_gauges(connection, utils.schema)
        table = await read_table_gauges(connection, utils.schema, queues=queues, max_tasks=max_tasks)
    return {
        each.name.removeprefix(f"{PREFIX}_"): [
            {"labels": dict(sample.labels), "value": sample.value} for sample in each.samples
        ]
        for each in (*ready, *table)
    }
