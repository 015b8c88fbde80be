"""The folder of the test run's own server; it comes from the package that users test with."""

from __future__ import annotations

from graphile_worker.testing.scratch import PREFIX, SETTLED_SECONDS, remove_leftovers, scratch_folder

__all__ = ["PREFIX", "SETTLED_SECONDS", "remove_leftovers", "scratch_folder"]
