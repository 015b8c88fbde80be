"""The PostgreSQL server that the tests use; it comes from the package that users test with."""

from __future__ import annotations

from graphile_worker.testing.database import DatabaseServer

__all__ = ["DatabaseServer"]
