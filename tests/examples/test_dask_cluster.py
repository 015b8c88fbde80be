"""One command starts a Dask cluster and runs jobs there."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.clusters
pytest.importorskip("distributed", reason="make clusters installs Dask")


def test_the_jobs_run_on_the_cluster(example: Any) -> None:
    printed = example.run(timeout=240)
    assert "pi is about 3.1" in printed
    assert example.is_done
