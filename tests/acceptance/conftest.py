"""Workers as processes, and the table in which their jobs note that they ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.worker_process import Start, starting


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the workers are started, and where their jobs leave notes."""
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """`start("-j", 2, url=database_url)`: a worker process; killed at the end if it still runs."""
    with starting(folder) as start:
        yield start


@pytest.fixture
async def done_table(connection: Any) -> None:
    """The table in which the task `record` notes what it did."""
    await connection.execute("create table done (job_id bigint not null)")
