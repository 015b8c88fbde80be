"""Who does what: the cases of the matrix. All of them with GRAPHILE_WORKER_PEERS=full, else a few."""

from __future__ import annotations

import os
from itertools import permutations, product

import pytest

from peers.protocol import NODE, PYTHON, RUNTIMES, RUST

IS_FULL = os.environ.get("GRAPHILE_WORKER_PEERS") == "full"

TURNS = [(PYTHON, NODE, RUST), (NODE, RUST, PYTHON), (RUST, PYTHON, NODE)]
"""Each runtime once in each place."""

ORDERS = list(permutations(RUNTIMES))
PAIRS = list(product(RUNTIMES, RUNTIMES))


def of_three(first: str, second: str, third: str) -> pytest.MarkDecorator:
    """A test for each assignment of three parts: `of_three("{} adds", "{} changes", "{} runs")`."""
    return pytest.mark.parametrize(
        "direction",
        ORDERS if IS_FULL else TURNS,
        ids=lambda names: ", ".join(p.format(n) for p, n in zip((first, second, third), names, strict=True)),
    )


def of_two(first: str, second: str, *, without: str | None = None) -> pytest.MarkDecorator:
    """A test for each pair of runtimes, also of the same one twice; none begins with `without`."""
    pairs = [pair for pair in (PAIRS if IS_FULL else [turn[:2] for turn in TURNS]) if pair[0] != without]
    return pytest.mark.parametrize(
        "direction",
        pairs,
        ids=lambda names: ", ".join(p.format(n) for p, n in zip((first, second), names, strict=True)),
    )


in_each = pytest.mark.parametrize("runtime", RUNTIMES)
only_full = pytest.mark.skipif(not IS_FULL, reason="takes a minute; run by `make peers`")
