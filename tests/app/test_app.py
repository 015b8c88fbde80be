"""App: what it takes, what it refuses, and how it is merged."""

from __future__ import annotations

import types
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from graphile_worker import App, CronItem, Task, parse_crontab, task
from graphile_worker.errors import ConfigError, CrontabError, TaskLoadError
from graphile_worker.hooks import Events, Hooks
from graphile_worker.runner.application import Lifespan
from graphile_worker.tasks.services import Extensions
from support.cases import looped


@task
async def first() -> None: ...


@task("other/second")
async def second(payload: dict[str, object]) -> None: ...


def plain(payload: Any) -> None: ...


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    yield


@looped(
    "tasks",
    [
        [first, second, plain],
        {"first": first, "other/second": second, "plain": plain},
        [[first, second], [plain]],
        [first, {"other/second": second}, {"plain": plain}],
        (each for each in (first, second, plain)),
    ],
)
def test_tasks_come_as_a_list_a_mapping_or_several_of_them(tasks: Any) -> None:
    assert list(App(tasks=tasks).tasks) == ["first", "other/second", "plain"]


def test_tasks_of_a_module() -> None:
    module = types.ModuleType("shop_tasks")
    vars(module).update(first=first, second=second, helper=plain)
    assert list(App(tasks=[module, plain]).tasks) == ["first", "other/second", "plain"]


def test_a_module_may_import_the_tasks_of_another() -> None:
    billing, emails = types.ModuleType("billing"), types.ModuleType("emails")
    vars(billing).update(first=first, second=second)
    vars(emails).update(first=first)
    assert list(App(tasks=[billing, emails]).tasks) == ["first", "other/second"]


def test_a_decorated_function_is_a_task_of_the_app() -> None:
    app = App(tasks=[first])

    @app.task
    async def send(payload: dict[str, str]) -> None: ...

    @app.task("users/verify", max_attempts=3, queue_name="mail")
    def verify() -> int:
        return 4

    @app.task(priority=-1)
    async def urgent() -> None: ...

    assert list(app.tasks) == ["first", "send", "users/verify", "urgent"]
    assert isinstance(send, Task)
    assert app.tasks["send"] is send
    assert verify() == 4
    assert verify.spec(None).max_attempts == 3
    assert urgent.spec(None).priority == -1


def test_annotations_may_name_types_that_follow() -> None:
    app = App()
    namespace: dict[str, Any] = {"app": app, "__name__": "shop_worker"}
    source = "from __future__ import annotations\n@app.task\ndef ship(payload: Order): ...\nclass Order: ..."
    exec(source, namespace)
    assert app.tasks["ship"].payload_annotation is namespace["Order"]


def test_two_tasks_of_one_identifier_are_refused_where_the_second_is_defined() -> None:
    app = App()

    @app.task
    def ship() -> None: ...

    line = ship.line

    with pytest.raises(
        TaskLoadError, match=f"the task 'ship' is defined twice: here and at .*:{line}"
    ) as info:

        @app.task("ship")
        def another() -> None: ...

    assert str(info.value).startswith(f"{__file__}:")
    assert info.value.line is not None
    assert line is not None
    assert info.value.line > line
    with pytest.raises(TaskLoadError, match="defined twice"):
        App(tasks=[{"ship": plain}, {"ship": first}])


def test_the_same_task_may_be_registered_twice() -> None:
    assert list(App(tasks=[first, [first]]).tasks) == ["first"]


@looped(
    ("arguments", "message"),
    [
        ({"tasks": "shop.tasks"}, "tasks: expected tasks, got 'shop.tasks'; .* set task_directory"),
        ({"tasks": 3}, "tasks: expected tasks, or a list or mapping of them, got 3"),
        ({"task_list": [first]}, "task_list: App has no such argument; did you mean 'tasks'?"),
        ({"parsed_cron_items": []}, "parsed_cron_items: .* did you mean 'cron_items'?"),
        ({"lifspan": 3}, "unknown option 'lifspan'; did you mean 'lifespan'?"),
        ({"concurency": 3}, "unknown option 'concurency'; did you mean 'concurrency'?"),
        ({"concurrency": 0}, "concurrency: must be at least 1, got 0"),
        ({"processes": 2}, "processes: this is not an option of this call; .* --processes"),
        ({"hooks": Hooks(), "events": Events()}, "both events and hooks are set"),
        ({"extensions": [App]}, "pass an object of App, not the class itself"),
        ({"lifespan": 3}, "lifespan: got 3; expected a function with @asynccontextmanager"),
        ({"lifespan": App}, "lifespan: got the class App"),
    ],
)
def test_wrong_arguments_are_refused_when_the_app_is_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        App(**arguments)


async def _generator() -> AsyncIterator[None]:
    yield


def _plain_generator() -> Any:
    yield


async def _coroutine() -> None: ...


def _greedy(app: App, settings: object) -> Any: ...


@looped(
    ("function", "message"),
    [
        (_generator, "_generator is a generator function; put @asynccontextmanager"),
        (_plain_generator, "_plain_generator is a generator function; put @asynccontextmanager"),
        (_coroutine, "_coroutine is a coroutine function; .* `yield` instead of `return`"),
        (_greedy, "_greedy takes app, settings; it is called with the App, or without arguments"),
    ],
)
def test_a_function_that_cannot_be_a_lifespan_is_refused(function: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        App(lifespan=function)


@looped("given", [lifespan, lifespan(), lambda: lifespan(), lambda app: lifespan()])
def test_a_lifespan_is_a_function_or_a_context_manager(given: Lifespan) -> None:
    assert App(lifespan=given).lifespan is given


def test_recurring_jobs_come_from_a_crontab_and_from_code() -> None:
    parsed = parse_crontab("0 5 * * * first ?id=five")
    app = App(
        crontab="0 4 * * * first",
        cron_items=[CronItem(task=second, match="* * * * *"), *parsed],
    )
    assert [item.identifier for item in app.cron_items] == ["first", "other/second", "five"]


@looped(
    ("arguments", "message"),
    [
        ({"crontab": "61 * * * * first"}, "crontab of the app:1:1: "),
        ({"cron_items": [CronItem(task="first", match="nonsense")]}, "item 0 of cron_items"),
        ({"cron_items": "0 4 * * * first"}, "cron_items: expected a list of CronItem"),
        (
            {"crontab": "0 4 * * * first", "cron_items": [CronItem(task="first", match="* * * * *")]},
            "the identifier 'first' is already used in crontab of the app:1",
        ),
    ],
)
def test_invalid_recurring_jobs_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CrontabError, match=message):
        App(**arguments)


def test_an_app_has_hooks_and_events_to_register_on() -> None:
    app = App()
    assert app.events is app.hooks.events
    events, hooks = Events(), Hooks()
    assert App(events=events).events is events
    assert App(hooks=hooks).hooks is hooks


async def test_merging_keeps_the_app_as_it_was() -> None:
    app = App(tasks=[first], extensions=[1], forbidden_flags=["a"], crontab="0 4 * * * first")
    other = App(tasks=[second], extensions=["text"], forbidden_flags=lambda: ["b"], crontab="0 4 * * * x")
    whole = app._with(Extensions([2, 2.5]), [other])
    assert list(whole.tasks) == ["first", "other/second"]
    assert [whole.extensions.get(kind) for kind in (int, float, str)] == [2, 2.5, "text"]
    assert [item.identifier for item in whole.cron_items] == ["first", "x"]
    assert callable(whole.forbidden_flags)
    flags: Any = whole.forbidden_flags()
    assert await flags == ["a", "b"]
    assert list(app.tasks) == ["first"]
    assert app.extensions.get(int) == 1
    assert app.forbidden_flags == ["a"]
    assert len(app.cron_items) == 1


def test_an_app_that_a_lifespan_yields_sets_no_options() -> None:
    with pytest.raises(ConfigError, match=r"cannot set options \(concurrency\)"):
        App()._with(Extensions(), [App(concurrency=2)])
