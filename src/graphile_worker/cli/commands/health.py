"""`graphile-worker health`: asks the probes of a worker on this machine, without the database."""

from __future__ import annotations

import http.client
from typing import Any

import click
import msgspec

from ...config import Settings
from ...errors import ConfigError
from ..support.command import Output, command

HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


@command("health", flags={"http_port": "http_port", "http_address": "http_address"})
@click.option("--live", is_flag=True, help="Ask /livez: whether to restart it.  [default: ask /readyz]")
@click.option("--http-port", type=click.IntRange(1, 65535), metavar="PORT", help="The worker's --http-port.")
@click.option("--http-address", metavar="ADDRESS", help="The worker's --http-address.")
@click.option(
    "--within",
    type=click.FloatRange(min=0, min_open=True),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for an answer.",
)
def health_command(settings: Settings, live: bool, within: float) -> Output:
    """Check that a worker with --http-port is healthy: exit status 0 if so, else 1.

    It asks the worker's /readyz: whether its event loop runs and jobs can be fetched. With --live it asks
    /livez, which does not depend on the database. Use it as the health check of a container.

    \b
    graphile-worker --http-port 8080 &
    graphile-worker health --http-port 8080
    """
    port = settings.process.http_port
    if not port:
        raise ConfigError(
            "no port is configured; start the worker with --http-port PORT and give the same port here with "
            "--http-port, or set http_port or the environment variable GRAPHILE_WORKER_HTTP_PORT for both"
        )
    address = HERE.get(settings.process.http_address, settings.process.http_address)
    found = _ask(address, port, "/livez" if live else "/readyz", within)
    workers, problems = found.get("workers", []), found["problems"]
    healthy = [f"worker process {worker['pid']} is healthy" for worker in workers if worker["healthy"]]
    return Output(
        lambda: {"healthy": not problems, "problems": problems, "workers": workers},
        lambda: click.echo("\n".join(healthy), nl=bool(healthy)),
        notes=problems,
        status=1 if problems else 0,
    )


def _ask(address: str, port: int, path: str, within: float) -> dict[str, Any]:
    where = f"{address} on port {port}"
    connection = http.client.HTTPConnection(address, port, timeout=within)
    try:
        connection.request("GET", f"{path}?verbose")
        found: dict[str, Any] = msgspec.json.decode(connection.getresponse().read())
        return found if "problems" in found else {"problems": [f"what answers at {where} is no worker"]}
    except TimeoutError:
        return {"problems": [f"the worker at {where} does not answer; its event loop may be blocked"]}
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        return {"problems": [f"no worker answers at {where}: {error}"]}
    finally:
        connection.close()
