"""Workers of all runtimes, stopped and killed at random: ten seeds in `make peers`, else a short one."""

from __future__ import annotations

import pytest

from peers.churn import Churn, Size
from peers.directions import IS_FULL, ORDERS
from peers.protocol import Peers
from peers.shared import Shared

SIZE = Size(jobs=1500, stops=15) if IS_FULL else Size(jobs=300, stops=4)


@pytest.mark.parametrize("seed", range(1, 11) if IS_FULL else [1])
async def test_churn(empty_peers: Peers, empty_shared: Shared, seed: int) -> None:
    churn = Churn(empty_peers, empty_shared, seed, SIZE)
    await churn.run(ORDERS[seed % len(ORDERS)])
    assert await churn.faults() == {}
