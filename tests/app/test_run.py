"""`run(app=…)`: tasks, hooks, plugins, flags, recurring jobs and options of an app in a worker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import App, Job, JobSpec, run, run_once
from graphile_worker.errors import ConfigError, CrontabError, TaskLoadError
from graphile_worker.hooks import Events, Hooks
from graphile_worker.hooks.emitter import emit_once
from graphile_worker.hooks.events import GracefulShutdown, JobSucceeded
from graphile_worker.options import WorkerOptions
from graphile_worker.runner.build import WorkerBuilder
from graphile_worker.tasks.services import Extensions
from support.working import SCHEMA, Jobs

UNUSED = "postgres:///unused"


class Recorder:
    """A plugin that counts what happens to it."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def install(self, hooks: Hooks) -> None:
        self.seen["installed"] += 1
        hooks.events.on(JobSucceeded, lambda event: self.seen.update(["succeeded"]))

    async def start(self, worker: Any) -> None:
        self.seen["started"] += 1

    async def stop(self) -> None:
        self.seen["stopped"] += 1


def hello() -> None: ...


def options(url: str, **more: Any) -> dict[str, Any]:
    return {"connection_string": url, "handle_signals": False, **more}


def built(**arguments: Any) -> WorkerBuilder:
    given: Any = {"connection_string": UNUSED, **arguments}
    return WorkerBuilder(given)


# -- hooks -------------------------------------------------------------------------------------------------


async def test_hooks_events_and_plugins_of_an_app_serve_every_run_and_do_not_accumulate(
    database_url: str, jobs: Jobs
) -> None:
    seen: Counter[str] = Counter()
    plugin, of_call = Recorder(), Recorder()
    app = App(tasks=[hello], plugins=[plugin])

    @app.events.on(JobSucceeded)
    def succeeded(event: JobSucceeded) -> None:
        seen["succeeded"] += 1

    @app.hooks.before_run
    def before(job: Job) -> None:
        seen["before_run"] += 1

    @app.hooks.before_add
    def add(spec: JobSpec) -> None:
        seen["before_add"] += 1

    events, hooks = Events(), Hooks(events=Events())
    hooks.before_run(lambda job: seen.update(["before_run of the call"]))
    events.on(JobSucceeded, lambda event: seen.update(["succeeded of the call"]))
    calls: list[dict[str, Any]] = [{}, {"events": events}, {"hooks": hooks}]
    for number, more in enumerate(calls, start=1):
        await jobs.add("hello")
        await run_once(app=app, plugins=[of_call], **options(database_url), **more)
        assert (seen["succeeded"], seen["before_run"]) == (number, number)
        assert plugin.seen == dict.fromkeys(("installed", "started", "succeeded", "stopped"), number)
    assert (seen["succeeded of the call"], seen["before_run of the call"]) == (1, 1)
    assert of_call.seen == plugin.seen
    async with run(app=app, **options(database_url)) as runner:
        await runner.add_job("hello")
    assert seen["before_add"] == 1


async def test_hooks_that_are_added_during_a_run_take_effect_in_it(database_url: str, jobs: Jobs) -> None:
    seen: list[Job] = []
    app = App(tasks=[hello])
    async with run(app=app, poll_interval=600, **options(database_url)):
        app.hooks.before_run(lambda job: seen.append(job))
        app.events.on(JobSucceeded, lambda event: seen.append(event.job))
        await jobs.add("hello")
        await jobs.until_gone()
    assert len(seen) == 2


async def test_one_object_for_the_app_and_the_call_is_used_once(database_url: str, jobs: Jobs) -> None:
    seen: list[Job] = []
    app = App(tasks=[hello])
    app.hooks.before_run(lambda job: seen.append(job))
    app.events.on(JobSucceeded, lambda event: seen.append(event.job))
    await jobs.add("hello")
    await run_once(app=app, hooks=app.hooks, **options(database_url))
    assert len(seen) == 2


def test_an_observer_of_an_app_sees_an_event_of_the_process_once() -> None:
    seen: list[str] = []
    app, events = App(), Events()
    app.events.on(GracefulShutdown, lambda event: seen.append("app"))
    events.on(GracefulShutdown, lambda event: seen.append("call"))
    runs = [Hooks(events=events).for_run(), Hooks().for_run(), Hooks(events=app.events).for_run()]
    for hooks in runs:
        hooks._join(app.hooks)
        hooks.events.on(GracefulShutdown, lambda event: seen.append("plugin"))
    emit_once([hooks.events for hooks in runs], GracefulShutdown(signal="SIGTERM"))
    assert Counter(seen) == {"app": 1, "call": 1, "plugin": 3}
    seen.clear()
    runs[2].events.emit(GracefulShutdown(signal="SIGTERM"))
    assert Counter(seen) == {"app": 1, "plugin": 1}


# -- tasks, flags, recurring jobs --------------------------------------------------------------------------


@pytest.fixture
def project(place: Path) -> Path:
    (place / "tasks").mkdir()
    (place / "tasks" / "from_folder.py").write_text("def from_folder(): ...\n")
    return place


def test_the_task_directory_is_for_apps_without_tasks(project: Path) -> None:
    builder = built(app=App())
    builder._load()
    assert list(builder.tasks) == ["from_folder"]
    builder = built(app=App(tasks=[hello]))
    builder._load()
    assert list(builder.tasks) == ["hello"]


@pytest.mark.parametrize("how", ["call", "environment", "file", "app", "options and call"])
def test_a_task_directory_that_is_named_is_joined(
    project: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, arguments = App(tasks=[hello]), dict[str, Any]()
    if how == "call":
        arguments["task_directory"] = "tasks"
    elif how == "environment":
        monkeypatch.setenv("GRAPHILE_WORKER_TASK_DIRECTORY", "tasks")
    elif how == "file":
        (project / "graphile_worker.toml").write_text('task_directory = "tasks"\n')
    elif how == "app":
        app = App(tasks=[hello], task_directory="tasks")
    else:
        arguments = {"task_directory": "tasks", "options": WorkerOptions()}
    builder = built(app=app, **arguments)
    builder._load()
    assert set(builder.tasks) == {"hello", "from_folder"}


def test_a_task_list_is_joined(project: Path) -> None:
    builder = built(app=App(tasks=[hello]), task_list={"other": hello})
    builder._load()
    assert list(builder.tasks) == ["hello", "other"]
    with pytest.raises(TaskLoadError, match="the task 'hello' is defined twice"):
        built(app=App(tasks=[hello]), task_list={"hello": print})._load()


def test_an_app_without_tasks_and_no_directory_says_how_to_register_them(place: Path) -> None:
    with pytest.raises(
        TaskLoadError, match="has no tasks, and there is no directory 'tasks'; register tasks"
    ):
        built(app=App())._load()


def test_recurring_jobs_of_the_app_and_of_the_crontab_are_joined(place: Path) -> None:
    app = App(tasks=[hello], crontab="0 4 * * * hello")
    builder = built(app=app)
    builder._load()
    assert [item.identifier for item in builder.cron_items] == ["hello"]
    (place / "crontab").write_text("0 5 * * * hello ?id=five\n")
    builder._load()
    assert [item.identifier for item in builder.cron_items] == ["hello", "five"]
    (place / "crontab").write_text("0 5 * * * hello\n")
    with pytest.raises(CrontabError, match="the identifier 'hello' is already used in crontab of the app:1"):
        builder._load()


@pytest.mark.parametrize("of_app", [["a"], lambda: ["a"]])
async def test_forbidden_flags_of_the_app_and_of_the_call_are_joined(
    database_url: str, jobs: Jobs, of_app: Any
) -> None:
    for flags in (["a"], ["b"], ["c"], None):
        await jobs.add("hello", flags=flags)
    app = App(tasks=[hello], forbidden_flags=of_app)
    await run_once(app=app, forbidden_flags=["b"], **options(database_url))
    assert await jobs.count() == 2
    await run_once(app=app, **options(database_url))
    assert await jobs.count() == 1


@pytest.mark.parametrize("as_function", [False, True])
async def test_other_rules_for_flags_of_an_app_are_defaults(
    database_url: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, as_function: bool
) -> None:
    def source(flags: list[str]) -> Any:
        return (lambda: flags) if as_function else flags

    async def take(**given: Any) -> list[list[str]]:
        """The flags of the jobs that ran."""
        await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")
        ids = {await jobs.add("hello", flags=flags): flags for flags in (["a"], ["b"], ["a", "b"], ["c"])}
        await run_once(app=app, **given, **options(database_url))
        left = {row["id"] for row in await jobs.all()}
        return [flags for id_, flags in ids.items() if id_ not in left]

    app = App(tasks=[hello], accepted_flags=source(["a"]), flag_allowlist=source(["a", "c"]))
    assert await take() == [["a"]]
    assert await take(accepted_flags=["b"], flag_allowlist=["b"]) == [["b"]]
    assert await take(accepted_flags=lambda: ["c"]) == [["c"]]
    assert await take(accepted_flags=[]) == [["a"], ["c"]]
    assert await take(flag_allowlist=lambda: None) == [["a"], ["a", "b"]]
    monkeypatch.setenv("GRAPHILE_WORKER_ACCEPTED_FLAGS", "c,b")
    assert await take() == [["c"]]
    monkeypatch.setenv("GRAPHILE_WORKER_FORBIDDEN_FLAGS", "c")
    assert await take() == []


def test_an_inner_app_sets_no_rules_but_forbidden_flags() -> None:
    for name in ("accepted_flags", "flag_allowlist"):
        for flags in (["a"], lambda: ["a"]):
            with pytest.raises(ConfigError, match=rf"cannot set options \({name}\)"):
                App()._with(Extensions(), [App(**{name: flags})])  # type: ignore[arg-type]
    whole = App(forbidden_flags=["a"])._with(Extensions(), [App(forbidden_flags=["b"])])
    assert whole.forbidden_flags == ["a", "b"]


# -- options -----------------------------------------------------------------------------------------------


def test_options_of_an_app_give_way_to_file_environment_and_call(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(tasks=[hello], concurrency=2, poll_interval=2.5, grace=3, max_pool_size=4, schema="of_app")
    (place / "graphile_worker.toml").write_text("poll_interval = 7\ngrace = 7\nmax_pool_size = 7\n")
    monkeypatch.setenv("GRAPHILE_WORKER_GRACE", "8")
    monkeypatch.setenv("GRAPHILE_WORKER_MAX_POOL_SIZE", "8")
    found = built(app=app, max_pool_size=9).options
    assert (found.concurrency, found.poll_interval, found.grace, found.max_pool_size) == (2, 7, 8, 9)
    assert found.schema == "of_app"


def test_an_options_object_replaces_those_of_the_app() -> None:
    app = App(tasks=[hello], concurrency=2, grace=3)
    found = built(app=app, options=WorkerOptions(concurrency=5)).options
    assert (found.concurrency, found.grace) == (5, WorkerOptions().grace)


def test_an_app_may_name_the_database(database_url: str, place: Path) -> None:
    app = App(tasks=[hello], connection_string=database_url)
    assert WorkerBuilder({"app": app}).options.connection_string == database_url
    assert built(app=app).options.connection_string == UNUSED
