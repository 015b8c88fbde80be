"""`python -m shop`: the whole shop on this machine, until Ctrl-C.

It starts an embedded PostgreSQL and three processes: the web API, a worker, and fakes of the mail service and
the bank. Web API and worker restart when the code changes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from graphile_worker.database.embedded import EmbeddedPostgres

from .dev.processes import first_to_end, running, stop_on_signals
from .dev.sample_data import prepare

PROJECT = Path(__file__).parent.parent
WELCOME = """
The shop is starting; Ctrl-C stops it. Order something:

  curl --json '{{"customer_id": 1, "sku": "socks", "card": "4242"}}' localhost:{port}/orders

All endpoints are listed at http://localhost:{port}/docs.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m shop", description="Run the whole shop on this machine.")
    parser.add_argument("--port", type=int, default=8000, help="port of the web API [default: 8000]")
    parser.add_argument("--fakes-port", type=int, default=8001, help="port of the fakes [default: 8001]")
    options = parser.parse_args()
    sys.exit(asyncio.run(run(options.port, options.fakes_port)))


async def run(port: int, fakes_port: int) -> int:
    """Returns the exit status: 0 after a signal, 1 if a process has ended by itself."""
    stop = stop_on_signals()
    async with EmbeddedPostgres(PROJECT / ".graphile-worker") as server:
        url = server.url().replace("postgresql://", "postgresql+asyncpg://", 1)
        await prepare(url)
        fakes_url = f"http://127.0.0.1:{fakes_port}"
        environment = os.environ | {
            "DATABASE_URL": url, "MAIL_URL": fakes_url, "BANK_URL": fakes_url, "PYTHONUNBUFFERED": "1"
        }  # fmt: skip
        print(WELCOME.format(port=port), flush=True)
        async with running(commands(port, fakes_port), environment, PROJECT) as processes:
            ended = await first_to_end(processes, stop)
            if ended is not None:
                print(f"{ended.name} exited with status {ended.status}; stopping the shop", file=sys.stderr)
    return 0 if ended is None else 1


def commands(port: int, fakes_port: int) -> dict[str, list[str]]:
    uvicorn = [sys.executable, "-m", "uvicorn", "--timeout-graceful-shutdown", "5"]
    fakes = ["shop.dev.fakes:make_fakes", "--factory", "--log-level", "warning"]
    return {
        "fakes": [*uvicorn, *fakes, "--port", str(fakes_port)],
        "web": [*uvicorn, "shop.web:api", "--port", str(port), "--reload", "--reload-dir", "shop"],
        "worker": [sys.executable, "-m", "graphile_worker", "--watch", "--grace", "5"],
    }


if __name__ == "__main__":
    main()
