"""Runs the code blocks of one page in order, in a process and a current folder of its own.

    python page_process.py BLOCKS.json      DATABASE_URL is the page's database

At the first failure it exits with status 1 and prints the line of the block to standard error.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
import traceback
import types
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import asyncpg

PATIENCE = 180.0
WAITS = "await runner.wait()"


class Page:
    """The state that the blocks of a page share."""

    def __init__(self) -> None:
        self.module = types.ModuleType("page")
        sys.modules["page"] = self.module
        sys.path.insert(0, os.getcwd())
        self.loop = asyncio.Runner()
        self.printed = ""

    def run(self, block: dict[str, Any]) -> None:
        language, text = block["language"], block["text"]
        if block["prints"]:
            self._compare(text)
            return
        if block["path"]:
            path = Path(block["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if path.suffix == ".py":
                compile(text, str(path), "exec")
            if path.suffix not in (".toml", ".json") and path.name != "crontab":
                return
        if handler := getattr(self, f"_run_{language}", None):
            handler(text)

    def _run_python(self, text: str) -> None:
        code = compile(text, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        output = io.StringIO()
        with redirect_stdout(output), _stopped_when_idle(WAITS in text):
            if code.co_flags & inspect.CO_COROUTINE:
                self.loop.run(asyncio.wait_for(_awaited(code, self.module.__dict__), PATIENCE))
            else:
                exec(code, self.module.__dict__)
        self.printed = output.getvalue()

    def _run_py(self, text: str) -> None:
        compile(text, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    def _run_bash(self, text: str) -> None:
        done = subprocess.run(
            ["bash", "-e", "-u", "-o", "pipefail", "-c", text],
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
        self.printed = done.stdout
        sys.stderr.write(done.stdout)
        if done.returncode:
            raise RuntimeError(f"bash ended with status {done.returncode}")

    def _run_sql(self, text: str) -> None:
        async def execute() -> None:
            connection = await asyncpg.connect(os.environ["DATABASE_URL"])
            try:
                await connection.execute(text)
            finally:
                await connection.close()

        self.loop.run(execute())

    def _run_toml(self, text: str) -> None:
        from graphile_worker.config import resolve_settings

        tables = tomllib.loads(text)
        path = Path("pyproject.toml" if "tool" in tables else "graphile_worker.toml")
        keep = path.read_text() if path.exists() else None
        path.write_text(text)
        resolve_settings({}, environ={}, config_file=path)
        if keep is not None:
            path.write_text(keep)
        elif not text.startswith("# "):
            path.unlink()

    def _run_json(self, text: str) -> None:
        for document in [text] if text.count("\n{") == 0 else text.splitlines():
            json.loads(document)

    def _run_crontab(self, text: str) -> None:
        from graphile_worker import parse_crontab

        parse_crontab(text)

    def _compare(self, expected: str) -> None:
        pattern = re.escape(expected.strip()).replace("…", ".*?")
        if not re.fullmatch(pattern, self.printed.strip(), re.DOTALL):
            raise AssertionError(f"expected output:\n{expected}\nactual output:\n{self.printed}")


async def _awaited(code: types.CodeType, namespace: dict[str, Any]) -> None:
    await eval(code, namespace)


def _own_handler(*_: object) -> None:
    """Ignores a signal that arrives after its worker has ended."""


@contextmanager
def _stopped_when_idle(waits: bool) -> Iterator[None]:
    """Sends a signal to a block that waits for its worker, once the worker is idle."""
    if not waits:
        yield
        return
    signal.signal(signal.SIGTERM, _own_handler)
    ended = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_stop_when_idle(ended)))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


async def _stop_when_idle(ended: threading.Event) -> None:
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        while not ended.is_set():
            if signal.getsignal(signal.SIGTERM) is not _own_handler and not await connection.fetchval(
                "select count(*) from graphile_worker._private_jobs "
                "where run_at <= now() and attempts < max_attempts or locked_at is not null"
            ):
                os.kill(os.getpid(), signal.SIGTERM)
                return
            await asyncio.sleep(0.02)
    finally:
        await connection.close()


def main() -> int:
    blocks = json.loads(Path(sys.argv[1]).read_text())
    page = Page()
    with page.loop:
        for block in blocks:
            try:
                page.run(block)
            except BaseException:
                traceback.print_exc()
                sys.stderr.write(f"the {block['language']} block at line {block['line']} failed\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
