"""Errors that stop start-up: every message names the file, and the line if there is one."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from graphile_worker.errors import TaskLoadError
from graphile_worker.tasks import load_tasks


def failure(source: str = "tasks") -> TaskLoadError:
    with pytest.raises(TaskLoadError) as caught:
        load_tasks(source)
    return caught.value


def test_a_file_without_a_task_says_what_was_expected_and_what_it_has(folder: Any) -> None:
    path = folder.write("users/send-mail.py", "import os\ndef sendMail(): ...\ndef other(): ...")
    error = failure()
    assert error.path == str(path)
    assert "expected a function named 'send_mail' (for the task 'users/send-mail')" in str(error)
    assert "it has the functions sendMail, other" in str(error)
    assert "begin with '_'" in str(error)


def test_a_single_file_without_a_task_says_so(folder: Any) -> None:
    path = folder.write_beside("jobs.py", "def helper(): ...")
    error = failure("jobs.py")
    assert error.path == str(path)
    assert "expected functions with @task" in str(error)


def test_a_class_named_like_the_file_is_no_task(folder: Any) -> None:
    path = folder.write("hello.py", "class hello:\n    def __call__(self): ...\n")
    error = failure()
    assert "the class hello cannot be a task" in str(error)
    assert (error.path, error.line) == (str(path), 1)


def test_a_syntax_error_names_file_and_line(folder: Any) -> None:
    path = folder.write("hello.py", "x = 1\ndef hello(:\n    pass\n")
    error = failure()
    assert (error.path, error.line) == (str(path), 2)
    assert "SyntaxError" in str(error)


def test_a_syntax_error_in_a_helper_names_the_helper(folder: Any) -> None:
    path = folder.write("_helper.py", "x = 1\n\n\nif\n")
    folder.write("hello.py", "from ._helper import x\ndef hello(): ...")
    error = failure()
    assert (error.path, error.line) == (str(path), 4)


def test_an_exception_while_importing_names_the_innermost_line_inside_the_folder(folder: Any) -> None:
    folder.write_beside("library.py", "def connect():\n    return 1 / 0")
    path = folder.write("_helper.py", "import library\n\nlibrary.connect()")
    folder.write("hello.py", "from . import _helper\ndef hello(): ...")
    error = failure()
    assert (error.path, error.line) == (str(path), 3)
    assert "ZeroDivisionError: division by zero" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_a_missing_dependency_names_the_import(folder: Any) -> None:
    path = folder.write("hello.py", "x = 1\nimport no_such_library\ndef hello(): ...")
    error = failure()
    assert (
        str(error) == f"{path}:2: cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"
    )


def test_a_file_that_exits_when_imported_is_an_error_not_the_end_of_the_process(folder: Any) -> None:
    folder.write("hello.py", "import sys\nsys.exit('done')")
    error = failure()
    assert error.line == 2
    assert "must not exit when it is imported" in str(error)


def test_an_error_that_quotes_no_file_of_its_own_points_at_the_task_file(folder: Any) -> None:
    path = folder.write("hello.py", "import ast\nast.literal_eval('1 +')")
    error = failure()
    assert (error.path, error.line) == (str(path), 2)


def test_a_wrong_signature_keeps_its_own_place(folder: Any) -> None:
    path = folder.write(
        "hello.py",
        """
        from graphile_worker.tasks import task
        x = 1
        @task
        def hello(a, b, c): ...
        """,
    )
    error = failure()
    assert (error.path, error.line) == (str(path), 3)
    assert "hello requires 3 arguments (a, b, c)" in str(error)


def test_an_annotation_that_cannot_be_resolved_stops_start_up(folder: Any) -> None:
    path = folder.write("hello.py", "from __future__ import annotations\ndef hello(payload: Nowhere): ...")
    error = failure()
    assert (error.path, error.line) == (str(path), 2)
    assert "'Nowhere' cannot be resolved" in str(error)


def test_an_identifier_defined_in_two_files_names_both(folder: Any) -> None:
    first = folder.write(
        "a.py", "from graphile_worker.tasks import task\ndef a(): ...\n@task('b')\ndef x(): ..."
    )
    second = folder.write("b.py", "def b(): ...")
    error = failure()
    assert (error.path, error.line) == (str(second), 1)
    assert f"the task 'b' is defined twice: here and at {first}:3;" in str(error)


def test_an_identifier_of_a_script_and_of_a_function_names_both(folder: Any) -> None:
    script = folder.write("b.sh", "#!/bin/sh", executable=True)
    folder.write("a.py", "from graphile_worker.tasks import task\n@task('b')\ndef x(): ...")
    error = failure()
    assert error.path == str(script)
    assert "defined twice" in str(error)


def test_a_module_that_failed_is_not_left_behind(folder: Any) -> None:
    path = folder.write("hello.py", "raise ValueError('first')")
    assert "first" in str(failure())
    assert "tasks.hello" not in sys.modules
    path.write_text("def hello(): ...")
    assert list(load_tasks("tasks")) == ["hello"]
