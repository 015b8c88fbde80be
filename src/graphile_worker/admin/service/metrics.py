"""Gauges about the database for Prometheus, from the sampler and never from a scan."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ...database.connections.errors import explained
from ...metrics.catalogue import EXPORTER_UP, INFO, LAST_SUCCESS
from ...metrics.database_reader import pool_gauges, read_table_gauges, ready_gauges
from ...metrics.families import Family, gauges_as_text, labelled, single
from ...values import __version__
from ..hub import Hub
from ..models.overview import Sample

logger = logging.getLogger("graphile_worker.admin")

TABLE_EVERY = 60.0
"""Seconds between two counts of jobs by task and by queue."""
MAX_AGE = 15.0
"""Seconds. Scrapes that are closer together share a sample."""
WITHDRAWN_AFTER = 45.0
"""Seconds after which values of a database that does not answer are withdrawn."""


async def read_metrics(hubs: Sequence[Hub], queues: Sequence[str] = ()) -> str:
    """The text that Prometheus reads; with several databases, a label tells them apart.

    `queues`: names of queues with a label of their own; without names, all queues if they are few.
    """
    is_one = len(hubs) == 1
    parts = [
        labelled(await _of(hub, queues), {} if is_one else {"database": hub.database.name}) for hub in hubs
    ]
    return gauges_as_text(each for part in parts for each in part)


async def _of(hub: Hub, queues: Sequence[str]) -> list[Family]:
    found: list[Family] = []
    last, is_up = 0.0, False
    try:
        sample = await hub.current(max_age=MAX_AGE)
        last, is_up = sample.at.timestamp(), hub.down_since is None
        if is_up or time.time() - last < WITHDRAWN_AFTER:
            found += _of_sample(sample)
            found += await hub.shared("metrics", lambda: _of_table(hub, queues), max_age=TABLE_EVERY)
    except Exception as error:
        is_up = False
        logger.debug("no metrics: %s", explained(error))
    return [
        *found,
        single(INFO, 1, __version__, hub.database.schema.name),
        single(EXPORTER_UP, float(is_up)),
        single(LAST_SUCCESS, last),
    ]


def _of_sample(sample: Sample) -> list[Family]:
    found = ready_gauges(sample.ready.value, sample.oldest_wait)
    if sample.workers is not None:
        found += pool_gauges(sample.workers, sample.unreachable)
    return found


async def _of_table(hub: Hub, queues: Sequence[str]) -> list[Family]:
    async with hub.database.read() as connection:
        return await read_table_gauges(connection, hub.database.schema, queues=queues)
