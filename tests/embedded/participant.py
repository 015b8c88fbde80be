"""A process that uses an embedded server on command, so that tests can run several and kill them.

Run as a script it reads one command a line (start, stop, status, exit) and answers each with one line
of JSON. With --user it gives up root's rights first, after importing all it needs, because that user
need not be able to read the interpreter's files.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.errors import EmbeddedPostgresError, GraphileWorkerError

FAST = {"fsync": "off", "shared_buffers": "16MB", "max_connections": "30"}


class Participant:
    """The parent's end of such a process."""

    def __init__(self, data_dir: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(data_dir), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})},
        )

    def send(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process ended with status {self.process.wait(timeout=60)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, command: str) -> dict[str, Any]:
        self.send(command)
        return self.answer()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """Lets the process end by itself and waits for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def url_of(server: EmbeddedPostgres) -> str | None:
    """None if it does not run; another process may stop it between the two questions."""
    try:
        return server.url() if server.is_running else None
    except EmbeddedPostgresError:
        return None


def serve(server: EmbeddedPostgres) -> None:
    for line in sys.stdin:
        command = line.strip()
        try:
            if command == "start":
                server.start()
            elif command == "stop":
                server.stop()
            elif command == "exit":
                return
            url = url_of(server)
            answer = {"running": url is not None, "url": url, "uid": os.geteuid()}
        except GraphileWorkerError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data_dir")
    parser.add_argument("--version")
    parser.add_argument("--user")
    arguments = parser.parse_args()
    if arguments.user:
        entry = pwd.getpwnam(arguments.user)
        os.setgroups([])
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    serve(EmbeddedPostgres(arguments.data_dir, version=arguments.version, settings=FAST))


if __name__ == "__main__":
    main()
