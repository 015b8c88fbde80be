"""A task that runs on the cluster; its machines import this module."""

from __future__ import annotations

import random

from graphile_worker import JobHelpers, task


@task(executor="cluster", keep=True)
def estimate_pi(payload: dict[str, int], helpers: JobHelpers) -> float:
    """Count random points in a circle."""
    draw = random.Random(payload["seed"])
    points = payload["points"]
    inside = sum(draw.random() ** 2 + draw.random() ** 2 <= 1 for _ in range(points))
    helpers.logger.info("%d of %d points are inside", inside, points)
    return 4 * inside / points
