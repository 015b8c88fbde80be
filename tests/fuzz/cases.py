"""How many cases the tests of this folder try, and how many were tried.

A short form, the same cases each time, belongs to every test run. With FUZZ_CASES=10000 in the environment
each of the five areas gets at least so many new ones; a case that fails is printed with what repeats it.
"""

from __future__ import annotations

import math
import os
from collections import Counter

from hypothesis import HealthCheck, Phase, settings

SHORT = 60
CASES = int(os.environ.get("FUZZ_CASES") or 0)

tried: Counter[str] = Counter()
"""Cases by area; printed at the end."""


def fuzzed(share: float = 1.0, *, short: int = SHORT) -> settings:
    """Put above `@given`: this test tries such a share of the cases of its area."""
    return settings(
        max_examples=math.ceil(CASES * share) or short,
        derandomize=not CASES,
        database=None,
        print_blob=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
