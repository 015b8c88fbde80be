"""The options of recovery, and the tables it needs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from graphile_worker.errors import ConfigError
from graphile_worker.values.option_groups import RecoveryOptions
from graphile_worker.values.options import WorkerOptions


def test_durations_may_be_timedeltas() -> None:
    options = RecoveryOptions(grace=timedelta(minutes=1), heartbeat_interval=timedelta(seconds=5))
    assert (options.grace, options.heartbeat_interval) == (60.0, 5.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"recovery_grace": 11}, "recovery_grace: 11.0 s is less than three times heartbeat_interval, 4.0 s"),
        ({"heartbeat_interval": 0}, "heartbeat_interval: must be more than 0 seconds"),
        ({"sweep_interval": 0}, "sweep_interval: must be more than 0 seconds"),
        ({"recovery_delay": -1}, "recovery_delay: must be a finite number of seconds"),
        ({"max_recoveries": -1}, "max_recoveries: must be at least 0"),
        ({"max_recoveries": True}, "max_recoveries: expected a whole number"),
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WorkerOptions.from_mapping(values)


@pytest.mark.parametrize("table", ["_private_py_workers", "_private_py_recoveries"])
async def test_the_tables_are_protected_like_their_siblings(connection: Any, table: str) -> None:
    assert await connection.fetchval(
        "select relrowsecurity from pg_class where oid = ('graphile_worker.' || $1)::regclass", table
    )
