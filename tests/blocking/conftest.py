"""A blocking client of the test's own database, and a look at that database."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from docs.blocks import ROOT
from graphile_worker import SyncWorkerUtils, make_sync_worker_utils

if str(ROOT) not in sys.path:  # the script that writes the client is found from the repository's root only
    sys.path.append(str(ROOT))


@pytest.fixture
def utils(database_url: str) -> Iterator[SyncWorkerUtils]:
    with make_sync_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture
def session(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Another session, in autocommit mode."""
    with psycopg.connect(database_url, autocommit=True) as session:
        yield session


@pytest.fixture
def count(session: psycopg.Connection[Any]) -> Callable[[], int]:
    """How many jobs there are."""

    def count() -> int:
        row = session.execute("select count(*) from graphile_worker._private_jobs").fetchone()
        assert row is not None
        return int(row[0])

    return count
