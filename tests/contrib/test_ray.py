"""RayExecutor on a real cluster of this machine. `make clusters` installs what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contrib import cluster_checks as checks
from contrib import cluster_tasks as tasks
from graphile_worker.errors import ConfigError, ProcessDiedError
from support.ray_head import SETTINGS, RayHead
from support.working import Jobs, Workers, headline, until

pytestmark = pytest.mark.clusters

if not Path("/proc/self/fd").exists():  # pragma: no cover
    pytest.skip("the tests find the processes of Ray in /proc", allow_module_level=True)
try:
    from graphile_worker.contrib.ray import RayExecutor
except ImportError as error:
    pytest.skip(f"make clusters installs Ray, where it can: {error}", allow_module_level=True)


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    made = RayHead()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        try:
            made.start()
            yield made
        finally:
            made.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


async def test_results_errors_and_logs_cross(
    head: RayHead, database_url: str, jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    await checks.everything_crosses(RayExecutor(head.address), database_url, jobs, workers, caplog)


async def test_a_killed_process_fails_the_attempt_and_the_function_ran_once(
    head: RayHead, jobs: Jobs, workers: Workers, file: Path
) -> None:
    settings = {"cluster.kind": "ray", "cluster.address": head.address, "cluster.num_cpus": 0.5}
    error = await checks.a_killed_process_fails_the_attempt_and_the_function_ran_once(
        settings, jobs, workers, file
    )
    assert error.startswith("the Ray worker that ran the task died")


async def test_two_workers_run_a_thousand_jobs_once(
    head: RayHead, jobs: Jobs, workers: Workers, file: Path
) -> None:
    await checks.two_workers_run_a_thousand_jobs_once(
        lambda: RayExecutor(head.address, num_cpus=0.5), jobs, workers, file
    )


async def test_a_running_job_is_shown_and_killed(
    head: RayHead, database_url: str, jobs: Jobs, workers: Workers, file: Path
) -> None:
    executor = RayExecutor(head.address, kill_after=1.0)
    place = await checks.a_running_job_is_shown_and_cancelled(
        executor, database_url, jobs, workers, file, "hang_there"
    )
    (pid,) = checks.lines(file)
    assert place == f"127.0.0.1, process {pid}"
    await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_code_is_shipped(
    head: RayHead, jobs: Jobs, workers: Workers, tmp_path: Path, monkeypatch: Any
) -> None:
    package = tmp_path / "app"
    package.mkdir()
    (package / "shipped.py").write_text(
        "from pathlib import Path\n"
        "from graphile_worker import task\n"
        '@task(executor="cluster", max_attempts=1)\n'
        "def shipped(payload):\n"
        '    Path(payload["file"]).write_text(__file__)\n'
    )
    monkeypatch.syspath_prepend(str(package))
    import shipped  # type: ignore[import-not-found]

    file = tmp_path / "ran"
    await jobs.add("shipped", {"file": str(file)})
    executor = RayExecutor(head.address, runtime_env={"working_dir": str(package)})
    await workers.once([shipped.shipped], executors={"cluster": executor}, timeout=checks.LONG)
    assert await jobs.count() == 0, headline(await jobs.one())
    assert file.read_text().startswith(str(head.folder))


async def test_a_lost_head_node_fails_the_attempt_and_the_worker_connects_again(
    head: RayHead, jobs: Jobs, workers: Workers, file: Path
) -> None:
    error = await checks.a_lost_cluster_fails_the_attempt_and_the_next_one_runs_on_the_new_one(
        RayExecutor(head.address), jobs, workers, file, lose=head.kill, again=head.start
    )
    assert error.startswith(
        ("the Ray cluster has lost the task", "the connection to the Ray cluster was lost")
    )


async def test_the_worker_does_not_start_without_the_cluster(workers: Workers) -> None:
    with pytest.raises(ProcessDiedError, match=r"the Ray cluster at 127.0.0.1:9 cannot be reached"):
        await workers.start(tasks.ALL, executors={"cluster": RayExecutor("127.0.0.1:9")})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"address": ""}, "expected the address of a head node"),
        ({"num_cpus": "many"}, "num_cpus: expected a number, got 'many'"),
        ({"kill_after": -1}, "kill_after: expected a number of seconds"),
        ({"runtime_env": {"x": object()}}, "runtime_env: expected values that JSON knows"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RayExecutor(**settings)
