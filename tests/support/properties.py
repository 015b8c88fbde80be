"""Settings of Hypothesis for tests of properties: none of its time limits, which a loaded machine exceeds."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings


def examples(count: int = 100, *allowed: HealthCheck, **more: Any) -> settings:
    """Put beside `@given`: how many examples to check, and what Hypothesis need not warn of."""
    return settings(
        max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow, *allowed], **more
    )
