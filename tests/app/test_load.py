"""Finding the app that `module:attribute` names: each mistake gets one sentence with the way out."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import App, run
from graphile_worker.errors import AppLoadError
from graphile_worker.runner.application import as_app, load_app
from support.cases import looped

WORKER = """
from contextlib import asynccontextmanager
from graphile_worker import App, task

app = App(concurrency=3)

@app.task
def hello(): ...

@asynccontextmanager
async def lifespan():
    yield

class Opened:
    async def __aenter__(self): ...
    async def __aexit__(self, *_): ...

opened = Opened()
tasks = [hello]
number = 3

async def generator():
    yield
"""


@pytest.fixture
def shop(place: Path) -> Path:
    (place / "shop").mkdir()
    (place / "shop" / "worker.py").write_text(WORKER)
    return place


def test_an_app_is_found_by_module_and_by_file(shop: Path) -> None:
    app = load_app("shop.worker:app")
    assert list(app.tasks) == ["hello"]
    assert app.name == "shop.worker:app"
    assert list(load_app("shop/worker.py:app").tasks) == ["hello"]
    assert list(load_app(f"{shop}/shop/worker.py:app").tasks) == ["hello"]


@pytest.mark.parametrize("name", ["lifespan", "opened", "Opened"])
def test_a_lifespan_and_a_context_manager_make_an_app(shop: Path, name: str) -> None:
    app = load_app(f"shop.worker:{name}")
    assert isinstance(app, App)
    assert app.lifespan is not None
    assert app.name == f"shop.worker:{name}"


@looped(
    ("name", "message"),
    [
        ("shop.worker", "app: expected module:attribute, got 'shop.worker'; for example shop.worker:app"),
        ("shop.worker:", "app: expected module:attribute, got 'shop.worker:'; for example shop.worker:app"),
        (":app", "app: expected module:attribute, got ':app'; for example shop.worker:app"),
        ("shop.wrker:app", "app: there is no module 'shop.wrker'; start the worker in the directory"),
        ("shopp.worker:app", "app: there is no module 'shopp'; start the worker in the directory"),
        ("worker.py:app", "app: 'worker.py' is neither an existing Python file nor the name of a module"),
        ("shop.worker:ap", "app: shop.worker has no attribute 'ap'; did you mean 'app'?"),
        ("shop.worker:app.nothing", "app: shop.worker has no attribute 'app.nothing'; did you mean 'app'?"),
        ("shop.worker:tasks", "shop.worker:tasks: an object of type list is not an app; expected an App"),
        ("shop.worker:hello", "shop.worker:hello: <Task 'hello' at "),
        ("shop.worker:number", "shop.worker:number: an object of type int is not an app; expected an App"),
        ("shop.worker:generator", "shop.worker:generator: lifespan: shop.worker.generator is a generator"),
        ("shop.worker:App", "shop.worker:App: this is the class App itself; expected an object"),
    ],
)
def test_mistakes_are_refused_with_the_way_out(shop: Path, name: str, message: str) -> None:
    with pytest.raises(AppLoadError, match=f"^{re.escape(message)}"):
        load_app(name)


def test_tasks_are_referred_to_the_flag_for_tasks(shop: Path) -> None:
    with pytest.raises(AppLoadError, match=r"For tasks use --tasks shop\.worker:tasks, or App"):
        load_app("shop.worker:tasks")


def test_a_module_without_an_app_says_so(place: Path) -> None:
    (place / "empty_worker.py").write_text("")
    with pytest.raises(AppLoadError, match="no attribute 'app'; there is no App in it; write app = App"):
        load_app("empty_worker:app")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = 1\nimport no_such_package\n", 2, "ModuleNotFoundError: No module named 'no_such_package'"),
        ("x = 1\n\n1 / 0\n", 3, "ZeroDivisionError"),
        ("def f(:\n", 1, "SyntaxError"),
        ("import sys\nsys.exit(3)\n", 2, "must not exit when it is imported"),
    ],
)
def test_an_error_in_the_module_names_its_line(place: Path, text: str, line: int, message: str) -> None:
    (place / "broken_worker.py").write_text(text)
    with pytest.raises(AppLoadError, match=message) as info:
        load_app("broken_worker:app")
    assert info.value.line == line
    assert info.value.path == str(place / "broken_worker.py")
    assert info.value.__cause__ is not None


def test_run_takes_an_app_a_lifespan_and_a_name(shop: Path) -> None:
    @asynccontextmanager
    async def lifespan() -> Any:
        yield

    for app in (App(), lifespan, lifespan(), "shop.worker:app"):
        run(app=app, connection_string="postgres:///unused")
    wrong: Any = [print]
    with pytest.raises(AppLoadError, match="app: an object of type list is not an app"):
        run(app=wrong, connection_string="postgres:///unused")
    assert as_app(lifespan).name.endswith("lifespan")
