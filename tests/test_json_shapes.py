"""The JSON of the command line and of an HTTP API: keys are written out, and none is missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from graphile_worker.database.migrations import MigrationReport
from graphile_worker.database.statements.cleanup import CleanupReport
from graphile_worker.database.statements.inspection import JobCounts, QueueSummary, Statistics
from graphile_worker.diagnostics import json_shapes
from graphile_worker.diagnostics.finding import Finding
from graphile_worker.recovery.registry.pool_state import BlockedLoop
from graphile_worker.recovery.registry.workers import RunningJob, WorkerSummary
from graphile_worker.recovery.sweep import RecoveredWorker, SweepReport
from graphile_worker.values.job import Pause
from graphile_worker.values.schema_name import SchemaName


def _made(cls: Any) -> Any:
    """An object whose fields hold their own names."""
    values: dict[str, Any] = {field.name: field.name for field in dataclasses.fields(cls)}
    if cls is WorkerSummary:
        values["running"] = [RunningJob(id=1, started_at=datetime.now(UTC))]
        values["blocked"] = BlockedLoop("work", 1, datetime.now(UTC), 16.0)
        values["lanes"] = values["executors"] = values["load"] = values["flag_rules"] = None
    if cls is QueueSummary:
        values["pause"] = None
    return cls(**values)


@pytest.mark.parametrize(
    ("shape", "cls"),
    [
        (json_shapes.queue_as_json, QueueSummary),
        (json_shapes.worker_as_json, WorkerSummary),
        (json_shapes.cleanup_as_json, CleanupReport),
    ],
)
def test_every_attribute_is_there_under_its_name(shape: Callable[[Any], Any], cls: Any) -> None:
    value = _made(cls)
    assert shape(value) == dataclasses.asdict(value)


def test_statistics_count_by_task_with_a_total() -> None:
    counts = JobCounts(ready=1, scheduled=2, running=3, failed=4)
    found = Statistics(
        jobs=counts,
        tasks={"b": JobCounts(ready=1), "a": JobCounts()},
        is_estimate=False,
        queues=2,
        locked_queues=1,
        oldest_ready_at=None,
        pauses=[Pause(queue_name="q", reason="deploy")],
    )
    shown = json_shapes.statistics_as_json(found)
    assert shown["jobs"] == {"ready": 1, "scheduled": 2, "running": 3, "failed": 4, "total": 10}
    assert list(shown["tasks"]) == ["a", "b"]
    assert {key: shown[key] for key in list(shown)[2:]} == {
        "is_estimate": False,
        "queues": 2,
        "locked_queues": 1,
        "oldest_ready_at": None,
        "pauses": [
            {
                "task_identifier": None,
                "queue_name": "q",
                "schedule": None,
                "paused_at": None,
                "until": None,
                "reason": "deploy",
            }
        ],
    }


def test_a_sweep_lists_the_workers_it_recovered() -> None:
    report = SweepReport(
        recovered=[RecoveredWorker(id="pool-a", returned=[1], failed=[2], left=[3])], lost={"pool-b": 4.5}
    )
    assert json_shapes.sweep_as_json(report) == dataclasses.asdict(report)


def test_a_migration_says_what_was_applied() -> None:
    report = MigrationReport(
        schema=SchemaName("jobs"),
        found_revision=None,
        revision=20,
        applied_revisions=(1, 20),
        applied_own_objects=(1,),
        missing_own_objects=frozenset(),
    )
    assert json_shapes.migration_as_json(report) == {
        "schema": "jobs",
        "found_revision": None,
        "revision": 20,
        "applied_revisions": (1, 20),
        "rust_revisions": (),
        "applied_extensions": (1,),
        "has_extensions": True,
    }


def test_the_worst_finding_decides_whether_all_is_well() -> None:
    error = Finding("schema", "error", "missing", "no jobs", "migrate")
    fine = Finding("connection", "ok", "works")
    shown = json_shapes.findings_as_json([error, fine])
    assert (shown["healthy"], shown["worst"]) == (False, "error")
    assert shown["findings"] == [
        dataclasses.asdict(finding) | {"page": f"troubleshooting.md#check-{finding.check}"}
        for finding in (error, fine)
    ]
    assert json_shapes.findings_as_json([]) == {"healthy": True, "worst": "ok", "findings": []}
