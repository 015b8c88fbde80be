"""`python start.py`: the application, a worker and an embedded PostgreSQL, until Ctrl-C."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from graphile_worker.database.embedded import EmbeddedPostgres

HERE = Path(__file__).parent
PORT = os.environ.get("PORT", "8000")


async def main() -> None:
    async with EmbeddedPostgres(HERE / ".graphile-worker") as server:
        os.environ.update(DATABASE_URL=server.url(), FLASK_APP="notes")
        flask = [sys.executable, "-m", "flask"]
        create_tables = "from notes import app, db; app.app_context().push(); db.create_all()"
        subprocess.run([sys.executable, "-c", create_tables], cwd=HERE, check=True)
        subprocess.run([*flask, "graphile-worker", "migrate"], cwd=HERE, check=True)
        commands = (["run", "--port", PORT], ["graphile-worker", "--app", "worker:app"])
        processes = [subprocess.Popen([*flask, *command], cwd=HERE) for command in commands]
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


if __name__ == "__main__":
    asyncio.run(main())
