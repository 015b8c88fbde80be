"""The PostgreSQL server that the tests use; it comes from the package that users test with."""

from __future__ import annotations

import os
from typing import Any

from graphile_worker.testing.database import DatabaseServer

__all__ = ["DatabaseServer", "chosen_programs"]


def chosen_programs() -> dict[str, Any]:
    """For `EmbeddedPostgres`: the version or the folder that the environment asks for."""
    return {
        "version": os.environ.get("TEST_POSTGRES_VERSION") or None,
        "bin_dir": os.environ.get("TEST_POSTGRES_BIN") or None,
    }
