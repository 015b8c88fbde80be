"""Finding tasks in folders, files and modules."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import pytest

from graphile_worker.errors import TaskLoadError
from graphile_worker.tasks import load_tasks


def run(made: Any) -> Any:
    """The result of the task, whether it is a coroutine function or not."""
    result = made._invoke({"a": 1}, None)
    return asyncio.run(result) if made.is_async else result


@pytest.mark.compat("TSK-1")
def test_a_folder_with_three_files_gives_three_tasks(folder: Any) -> None:
    folder.write("wouldyoulike.py", "def wouldyoulike(payload, helpers): return 'some sausages'")
    folder.write("wouldyoulike_default.py", "async def wouldyoulike_default(payload): return 'more sausages'")
    folder.write("would-you-like.py", "def would_you_like(): return 'no sausages'")
    registry = load_tasks("tasks")
    assert set(registry) == {"wouldyoulike", "wouldyoulike_default", "would-you-like"}
    assert run(registry["wouldyoulike"]) == "some sausages"
    assert run(registry["wouldyoulike_default"]) == "more sausages"
    assert run(registry["would-you-like"]) == "no sausages"


@pytest.mark.compat("TSK-2", "TSK-4", "TSK-7")
def test_a_file_that_exports_two_functions_gives_two_tasks(folder: Any, caplog: Any) -> None:
    folder.write_beside(
        "jobs.py",
        """
        __all__ = ["task1", "task2", "LIMIT"]
        LIMIT = 3
        def task1(payload, helpers): return "hi"
        async def task2(payload, helpers): return "hello"
        def helper(): ...
        """,
    )
    registry = load_tasks("jobs.py")
    assert list(registry) == ["task1", "task2"]
    assert [run(made) for made in registry.values()] == ["hi", "hello"]
    assert "'LIMIT' in __all__ is not a function" in caplog.text


@pytest.mark.compat("TSK-3", "TSK-5", "TSK-8")
def test_a_file_that_holds_a_mapping_gives_its_tasks(folder: Any) -> None:
    folder.write_beside(
        "jobs.py",
        """
        def hi(payload, helpers): return "hi"
        exports = {"t1": hi, "nested/t2": lambda: "hello"}
        """,
    )
    registry = load_tasks("jobs.py:exports")
    assert list(registry) == ["t1", "nested/t2"]
    assert [run(made) for made in registry.values()] == ["hi", "hello"]


@pytest.mark.compat("TSK-6")
def test_decorated_functions_of_a_file_are_its_tasks(folder: Any) -> None:
    folder.write_beside(
        "jobs.py",
        """
        from graphile_worker.tasks import task
        @task
        def one(): return 1
        @task("deep/two")
        def two(): return 2
        def helper(): ...
        """,
    )
    assert set(load_tasks("jobs.py")) == {"one", "deep/two"}


def test_exports_are_not_tasks_in_a_file_that_has_decorated_ones(folder: Any) -> None:
    folder.write_beside(
        "jobs.py",
        """
        from graphile_worker.tasks import task
        __all__ = ["one", "helper"]
        @task
        def one(): ...
        def helper(a, b, c): ...
        """,
    )
    assert set(load_tasks("jobs.py")) == {"one"}


def test_nested_folders_are_part_of_the_identifier(folder: Any) -> None:
    folder.write("users/email/verify.py", "def verify(): return 'ok'")
    folder.write("users/email/send-code.py", "def send_code(): return 'sent'")
    registry = load_tasks(folder.path)
    assert set(registry) == {"users/email/verify", "users/email/send-code"}
    assert run(registry["users/email/verify"]) == "ok"


def test_decorated_functions_come_besides_the_function_named_like_the_file(folder: Any) -> None:
    folder.write(
        "hello.py",
        """
        from graphile_worker.tasks import task
        def hello(): return "file"
        @task("greetings/hi", queue_name="polite")
        async def hi(payload): return "decorated"
        """,
    )
    registry = load_tasks("tasks")
    assert set(registry) == {"hello", "greetings/hi"}
    assert registry["greetings/hi"].spec_defaults == {"queue_name": "polite"}


def test_a_decorated_function_named_like_its_nested_file_serves_both_names(folder: Any) -> None:
    folder.write("users/verify.py", "from graphile_worker.tasks import task\n@task\ndef verify(): ...")
    assert set(load_tasks("tasks")) == {"users/verify", "verify"}


def test_an_identifier_that_is_given_wins_over_the_file_name(folder: Any) -> None:
    folder.write("users/verify.py", "from graphile_worker.tasks import task\n@task('v2')\ndef verify(): ...")
    assert set(load_tasks("tasks")) == {"v2"}


def test_a_function_imported_under_the_files_name_is_its_task(folder: Any) -> None:
    folder.write_beside("shop.py", "def order(): return 'ordered'")
    folder.write("order.py", "from shop import order")
    registry = load_tasks("tasks")
    assert run(registry["order"]) == "ordered"


def test_task_files_import_each_other_their_helpers_and_the_application_and_run_once(folder: Any) -> None:
    folder.write_beside("application.py", "runs = []")
    folder.write("_shared.py", "import application\napplication.runs.append('shared')\nVALUE = 5")
    folder.write(
        "a.py",
        """
        import application
        from tasks.b import b, register
        from . import _shared
        application.runs.append("a")
        def a(): return _shared.VALUE
        """,
    )
    folder.write(
        "b.py",
        """
        import application
        from graphile_worker.tasks import task
        application.runs.append("b")
        @task
        def register(): ...
        def b(): return 2
        """,
    )
    folder.write("deep/c.py", "from .._shared import VALUE\ndef c(): return VALUE")
    registry = load_tasks("tasks")
    assert set(registry) == {"a", "b", "register", "deep/c"}
    assert (run(registry["a"]), run(registry["b"]), run(registry["deep/c"])) == (5, 2, 5)
    assert sorted(sys.modules["application"].runs) == ["a", "b", "shared"]
    assert sys.modules["tasks.b"].b is registry["b"].function


def test_a_folder_may_have_the_name_of_a_file_and_of_a_module_of_python(folder: Any) -> None:
    folder.write_beside("json/users.py", "import json\ndef users(): return json.dumps([1])")
    folder.write_beside("json/users/remove.py", "def remove(): return 'removed'")
    registry = load_tasks("json")
    assert set(registry) == {"users", "users/remove"}
    assert run(registry["users"]) == "[1]"
    assert run(registry["users/remove"]) == "removed"
    assert sys.modules["json"].dumps([1]) == "[1]"


def test_a_package_of_tasks_is_imported_with_its_init_file(folder: Any) -> None:
    folder.write("__init__.py", "GREETING = 'hello'")
    folder.write("hello.py", "from . import GREETING\ndef hello(): return GREETING")
    assert run(load_tasks("tasks")["hello"]) == "hello"


def test_helper_files_hidden_files_and_strange_names_are_left_alone(folder: Any, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    folder.write("hello.py", "def hello(): ...")
    for name in ("_helper.py", "__main__.py", ".hidden.py", "_private/x.py", "__pycache__/y.py"):
        folder.write(name, "raise RuntimeError('imported')")
    strange_file = folder.write("sp ace.py", "raise RuntimeError('imported')")
    strange_folder = folder.write("sp ace/x.py", "raise RuntimeError('imported')").parent
    (folder.path / "circle").symlink_to(folder.path)
    assert list(load_tasks("tasks")) == ["hello"]
    assert f"ignoring file {strange_file}" in caplog.text
    assert f"ignoring folder {strange_folder}" in caplog.text


def test_a_link_to_a_file_is_a_task_under_the_links_name(folder: Any) -> None:
    folder.write_beside("elsewhere.py", "def linked(): return 'linked'")
    folder.path.mkdir()
    (folder.path / "linked.py").symlink_to(folder.project / "elsewhere.py")
    assert run(load_tasks("tasks")["linked"]) == "linked"


def test_files_that_are_neither_python_nor_executable_are_warned_about(folder: Any, caplog: Any) -> None:
    folder.write("hello.py", "def hello(): ...")
    folder.write("hello.json")
    folder.write("readme.txt")
    folder.write("multi.test.py")
    folder.write("forgotten.sh", "#!/bin/sh")
    assert list(load_tasks("tasks")) == ["hello"]
    warnings = [record.getMessage() for record in caplog.records]
    assert [text.split(":")[0] for text in warnings] == [
        "no task 'forgotten'",
        "no task 'multi'",
        "no task 'readme'",
    ]
    assert "chmod +x" in warnings[0]
    assert "chmod +x" not in warnings[1]


def test_modules_of_node_in_the_folder_are_named_in_one_line(folder: Any, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    folder.write("hello.py", "def hello(): ...")
    folder.write("hello.js")  # moved already
    for name in ("a.js", "b.ts", "b.d.ts", "users/c.mjs", "d.js.map"):
        folder.write(name)
    folder.write("forgotten.js", "#!/usr/bin/env node")
    assert list(load_tasks("tasks")) == ["hello"]
    forgotten, of_node = (record.getMessage() for record in caplog.records)
    assert "chmod +x" in forgotten
    assert of_node == f"{folder.path}: left to Node's workers: a.js, b.d.ts, b.ts, … (5 files)"


def test_a_python_file_with_the_execute_bit_is_still_python(folder: Any) -> None:
    folder.write("hello.py", "#!/usr/bin/env python3\ndef hello(): return 'python'", executable=True)
    assert run(load_tasks("tasks")["hello"]) == "python"


def test_of_two_files_for_one_task_python_wins_and_the_other_is_named(folder: Any, caplog: Any) -> None:
    folder.write("hello.py", "def hello(): return 'python'")
    script = folder.write("hello.sh", "#!/bin/sh", executable=True)
    registry = load_tasks("tasks")
    assert run(registry["hello"]) == "python"
    assert f"so {script} is not" in caplog.text


def test_an_executable_file_is_a_task(folder: Any) -> None:
    script = folder.write("users/notify.rb", "#!/usr/bin/ruby", executable=True)
    made = load_tasks("tasks")["users/notify"]
    assert (made.is_async, made._place) == (True, str(script))


# -- modules -----------------------------------------------------------------------------------------------


@pytest.fixture
def module(folder: Any) -> Any:
    folder.write_beside("shop/__init__.py")
    folder.write_beside("shop/mail.py", "from graphile_worker.tasks import task\n@task\ndef send(): ...")
    folder.write_beside(
        "shop/jobs.py",
        """
        from graphile_worker.tasks import task
        from .mail import send
        @task
        def charge(): ...
        def plain(): ...
        everything = [send, charge, plain]
        by_name = {"x/plain": plain}
        number = 5
        class Group:
            tasks = (charge,)
        """,
    )
    return folder


@pytest.mark.parametrize(
    ("source", "identifiers"),
    [
        ("shop.jobs", {"send", "charge"}),
        ("shop.jobs:", {"send", "charge"}),
        ("shop.jobs:everything", {"send", "charge", "plain"}),
        ("shop.jobs:by_name", {"x/plain"}),
        ("shop.jobs:charge", {"charge"}),
        ("shop.jobs:plain", {"plain"}),
        ("shop.jobs:Group.tasks", {"charge"}),
        ("shop/jobs_alone.py:chosen", {"chosen"}),
        ("shop:jobs", {"send", "charge"}),
    ],
)
def test_a_module_or_one_name_of_it_gives_its_tasks(module: Any, source: str, identifiers: set[str]) -> None:
    module.write_beside("shop/jobs_alone.py", "def chosen(): ...\ndef other(): ...")
    if source == "shop:jobs":
        module.write_beside("shop/__init__.py", "from . import jobs")
    assert set(load_tasks(source)) == identifiers


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("shop.jobs:nothing", r"shop\.jobs has no attribute 'nothing'; tasks there: send, charge"),
        ("shop.jobs:number", r"shop\.jobs:number is 5; expected a task, a list of tasks"),
        ("shop.missing", r"ModuleNotFoundError: No module named 'shop\.missing'"),
        ("shop", r"there is no task in it; put a file hello\.py"),
    ],
)
def test_a_module_without_what_was_asked_for_is_an_error(module: Any, source: str, complaint: str) -> None:
    if source == "shop":
        for name in ("mail", "jobs"):
            (module.project / "shop" / f"{name}.py").unlink()
    with pytest.raises(TaskLoadError, match=complaint):
        load_tasks(source)


# -- what is not there -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "below"), [("tasks", "tasks"), ("./a/../tasks", "tasks"), ("nested/tasks", "nested/tasks")]
)
def test_a_missing_folder_is_an_error_with_its_whole_path(folder: Any, source: str, below: str) -> None:
    path = folder.project / below
    with pytest.raises(TaskLoadError, match="create it") as caught:
        load_tasks(source)
    assert f"the task directory '{path}' does not exist" in str(caught.value)


def test_a_missing_folder_beside_a_file_of_that_name_is_an_error_that_says_so(folder: Any) -> None:
    folder.write_beside("tasks.py", "")
    with pytest.raises(TaskLoadError, match=r"there is a file tasks\.py: use --tasks tasks\.py"):
        load_tasks("tasks")


def test_a_missing_file_is_an_error(folder: Any) -> None:
    for source in ("jobs.py", "jobs.py:attribute"):
        with pytest.raises(TaskLoadError, match=r"jobs\.py' does not exist"):
            load_tasks(source)


def test_a_file_of_another_kind_is_an_error(folder: Any) -> None:
    folder.write_beside("tasks.txt", "hello")
    with pytest.raises(TaskLoadError, match=r"tasks\.txt: is not a Python file"):
        load_tasks("tasks.txt")


def test_an_empty_folder_is_an_error(folder: Any) -> None:
    folder.write(".gitkeep")
    with pytest.raises(TaskLoadError, match="there is no task in it"):
        load_tasks("tasks")
