"""Names, keys and payloads come back unchanged through every library, whatever they contain.

Django's connections are in `test_django.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from foreign.hostile_texts import cases, check_texts
from foreign.places import EACH_ADAPTER, PLACES


@pytest.mark.parametrize("name", EACH_ADAPTER)
async def test_hostile_texts_come_back_unchanged(name: str, shared_url: str, observer: Any) -> None:
    async with PLACES[name](shared_url) as place:
        for case in cases():
            await check_texts(place.utils(), place.do, *case)
        await place.rollback()
    assert await observer.fetchval("select count(*) from graphile_worker._private_jobs") == 0
