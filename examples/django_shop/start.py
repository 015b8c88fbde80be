"""`python start.py`: the site, a worker and an embedded PostgreSQL, until Ctrl-C."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from graphile_worker.database.embedded import EmbeddedPostgres

HERE = Path(__file__).parent
PORT = os.environ.get("PORT", "8000")
ADA = {
    "DJANGO_SUPERUSER_USERNAME": "ada",
    "DJANGO_SUPERUSER_EMAIL": "ada@example.com",
    "DJANGO_SUPERUSER_PASSWORD": "demo",
}


async def main() -> None:
    async with EmbeddedPostgres(HERE / ".graphile-worker") as server:
        os.environ["DATABASE_URL"] = server.url()
        manage = [sys.executable, str(HERE / "manage.py")]
        subprocess.run([*manage, "migrate"], check=True)
        add_user = [*manage, "createsuperuser", "--noinput"]
        subprocess.run(
            add_user, env=os.environ | ADA, stderr=subprocess.DEVNULL
        )  # from the second start on, she exists
        commands = (["runserver", "--noreload", f"127.0.0.1:{PORT}"], ["graphile_worker"])
        processes = [subprocess.Popen([*manage, *command]) for command in commands]
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
