"""What a type checker says about adding jobs: payloads must fit their tasks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

PROGRAM = """
from dataclasses import dataclass
from datetime import timedelta

import asyncpg

from graphile_worker.client import WorkerUtils, add_job_adhoc, make_worker_utils
from graphile_worker.spec import JobSpec
from graphile_worker.tasks import JobHelpers, task


@dataclass
class Mail:
    to: str


@task
async def send(payload: Mail, helpers: JobHelpers) -> None: ...


@task
async def nothing() -> None: ...


@task("counted", queue_name="q")
def count(payload: dict[str, int]) -> None: ...


async def main(utils: WorkerUtils) -> None:
    await utils.add_job(send, Mail("a"), job_key="k")
    await utils.add_job("send", {"to": "a"}, priority=3, run_at=timedelta(1))
    await utils.add_job("send")
    await utils.add_job(nothing)
    await utils.add_job(count, {"a": 1})
    await utils.add_jobs([JobSpec(send, Mail("a")), JobSpec("send", 5, flags=["a"]), JobSpec(nothing)])
    await add_job_adhoc(send, Mail("a"), connection_string="x", job_key="k")
    connection = await asyncpg.connect()
    await utils.add_job("send", connection=connection)
    await utils.add_job(send, {"to": "a"})  # wrong
    await utils.add_job(send)  # wrong
    await utils.add_job("send", jobkey="k")  # wrong
    await utils.add_job("send", job_key="k", job_key_mode="nope")  # wrong
    await utils.add_job("send", priority="high")  # wrong
    JobSpec(send, 5)  # wrong
    JobSpec("send", 5, queue=3)  # wrong
    await add_job_adhoc(send, 3)  # wrong
    async with make_worker_utils(pg_pool=await asyncpg.create_pool()) as other:
        await other.add_job(count, {"a": "b"})  # wrong
"""


def test_wrong_payloads_and_options_are_found_before_the_program_runs(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\n[mypy-asyncpg.*]\nignore_missing_imports = true\nfollow_imports = skip\n")
    report, problems, _ = api.run(
        [
            "--strict",
            "--follow-imports=silent",
            f"--config-file={config}",
            f"--cache-dir={tmp_path}",
            f"--python-executable={sys.executable}",
            str(program),
        ]
    )
    assert not problems
    found = {int(line) for line in re.findall(r"program\.py:(\d+): error", report)}
    expected = {
        number for number, line in enumerate(PROGRAM.splitlines(), start=1) if line.endswith("# wrong")
    }
    assert found == expected, report
