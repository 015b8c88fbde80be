"""`python -m scripts.reference` writes the reference pages; `--check` reports pages that are out of date.

The page about SQL comes from a database with the schema installed: DATABASE_URL, else an embedded server.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

from graphile_worker import run_migrations
from graphile_worker.database.embedded import EmbeddedPostgres

from . import (
    api_page,
    errors_page,
    events_page,
    job_options_page,
    metrics_page,
    options_page,
    sql_page,
)

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


async def pages(url: str) -> dict[str, str]:
    """The text of every page, by file name."""
    await run_migrations(connection_string=url)
    connection = await asyncpg.connect(url)
    try:
        sql = await sql_page.page(connection)
    finally:
        await connection.close()
    return {
        **options_page.pages(),
        "job-options.md": job_options_page.page(),
        "events.md": events_page.page(),
        "errors.md": errors_page.page(),
        "metrics.md": metrics_page.page(),
        "sql.md": sql,
        **api_page.pages(),
    }


@contextmanager
def database() -> Iterator[str]:
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="graphile-worker-reference-") as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder) / "postgres") as server:
            yield server.url()


def main(arguments: list[str]) -> str | None:
    with database() as url:
        wanted = asyncio.run(pages(url))
    if arguments == ["--check"]:
        old = [name for name, text in wanted.items() if _read(FOLDER / name) != text]
        return f"run `python -m scripts.reference`: {', '.join(old)} are out of date" if old else None
    FOLDER.mkdir(exist_ok=True)
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return None


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
