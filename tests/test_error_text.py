"""The text of an error: what users read, and that no exception can break it or make it huge."""

from __future__ import annotations

import asyncio
import builtins
import functools
import gc
import re
import shutil
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphile_worker
from graphile_worker.errors import BatchFailureError, ExtensionMissingError, JobError, PayloadError
from graphile_worker.errors import text as error_text
from graphile_worker.errors.text import (
    MAX_MESSAGE,
    MAX_PART,
    MAX_SUMMARY,
    MAX_TRACEBACK,
    describe,
    describe_and_format,
    drop_frames,
    format_traceback,
    message_of,
    summarize,
    type_name,
)
from graphile_worker.values.payload import decoder_for
from support.properties import examples

HERE = Path(__file__)
PACKAGE = Path(graphile_worker.__file__).parent


class OwnError(Exception):
    pass


def raised(function: Callable[..., Any], *args: Any) -> Any:
    """The exception that a function raises, with the frames from here on."""
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def in_package(function: Callable[..., Any], *, calls: str = "function()") -> Callable[..., Any]:
    """The function, called by code that seems to be in this package."""
    code = compile(
        f"def frame(function):\n    return {calls}\n", str(PACKAGE / "worker" / "made_up.py"), "exec"
    )
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    return functools.partial(namespace["frame"], function)


def ship() -> None:
    order: dict[str, str] = {}
    order["sku"]


def line_of(text: str) -> int:
    """The number of the first line in this file that contains the text."""
    lines = HERE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line and "line_of" not in line)


# -- last_error --------------------------------------------------------------------------------------------


def test_a_description_is_type_and_message_as_python_prints_them_then_the_place() -> None:
    first, place = describe(raised(in_package(ship))).split("\n")
    assert first == "KeyError: 'sku'"
    assert place.strip().endswith(f"test_error_text.py, line {line_of('order[')}, in ship")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("plain"), ValueError(), SystemExit(3), KeyboardInterrupt(), OwnError("mine"),
        asyncio.CancelledError(), OSError(2, "No such file", "x"), TimeoutError(), ValueError("two\nlines"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ExceptionGroup("several", [ValueError("a")]),
    ],
    ids=repr,
)  # fmt: skip
def test_without_frames_the_first_lines_are_those_that_python_prints(error: BaseException) -> None:
    printed = "".join(traceback.format_exception_only(error)).rstrip("\n")
    assert describe(error).split("\n  - ")[0] == printed


def test_the_place_is_relative_to_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "tasks" / "orders.py"
    namespace: dict[str, Any] = {}
    exec(compile("def ship():\n    raise ValueError('no')\n", str(file), "exec"), namespace)
    error = raised(namespace["ship"])
    monkeypatch.chdir(tmp_path)
    assert describe(error) == "ValueError: no\n  at tasks/orders.py, line 2, in ship"
    monkeypatch.chdir("/")
    assert describe(error) == f"ValueError: no\n  at {str(file)[1:]}, line 2, in ship"


def test_the_place_is_the_users_own_code_and_not_the_library_that_it_called() -> None:
    def remove() -> None:
        shutil.rmtree("/does/not/exist")

    assert f"line {line_of('shutil.rmtree(')}, in remove" in describe(raised(in_package(remove)))


def test_a_program_that_is_installed_as_a_package_is_the_users_own_code() -> None:
    site = "/venv/lib/python3.11/site-packages"
    library: dict[str, Any] = {}
    exec(compile("def get():\n    raise OSError('no route')\n", f"{site}/http/client.py", "exec"), library)
    program: dict[str, Any] = {"get": library["get"]}
    exec(compile("def ship():\n    get()\n", f"{site}/shop/tasks.py", "exec"), program)
    error = raised(in_package(program["ship"]))
    # Unlike a task, this function has a caller that is not a library: the test.
    assert describe(error.with_traceback(error.__traceback__.tb_next)) == (
        f"OSError: no route\n  at {site}/shop/tasks.py, line 2, in ship"
    )


def test_an_error_of_this_package_that_no_code_of_the_user_raised_is_its_message_alone() -> None:
    error = raised(decoder_for(int), '"x"')
    assert isinstance(error, PayloadError)
    error.with_traceback(error.__traceback__.tb_next)  # type: ignore[union-attr]  # without the frame of this test
    assert describe(error) == str(error)
    assert format_traceback(error) == str(error)
    assert describe(JobError("not today")) == "not today"


def test_an_error_of_this_package_that_the_users_code_met_has_its_name_and_place() -> None:
    def asks() -> None:
        raise ExtensionMissingError(int)

    lines = describe(raised(asks)).split("\n")
    assert lines[0].startswith("ExtensionMissingError: no extension of type int")
    assert lines[1].endswith("in asks")


def test_causes_and_contexts_have_their_places() -> None:
    def chained() -> None:
        try:
            ship()
        except KeyError as error:
            raise RuntimeError("no product") from error

    def while_handling() -> None:
        try:
            chained()
        except RuntimeError:
            raise OwnError("again")  # noqa: B904

    lines = describe(raised(while_handling)).split("\n")
    assert lines[0] == f"{__name__}.OwnError: again"
    assert lines[2] == "while handling RuntimeError: no product"
    assert lines[4] == "caused by KeyError: 'sku'"
    assert lines[5].endswith("in ship")


def test_members_of_groups_have_a_line_each() -> None:
    async def child(number: int) -> None:
        raise ValueError(f"member\n{number}")

    async def parent() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child(1))
            group.create_task(child(2))

    lines = describe(raised(asyncio.run, parent())).split("\n")
    assert lines[0] == "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)"
    assert lines[1].endswith("in parent")
    assert [line.partition(" at ")[0] for line in lines[2:]] == [
        "  - ValueError: member | 1",
        "  - ValueError: member | 2",
    ]


def test_notes_are_kept() -> None:
    error = ValueError("no")
    error.add_note("while importing row 7")
    assert describe(error) == "ValueError: no\nwhile importing row 7"
    assert format_traceback(error) == "ValueError: no\nwhile importing row 7"


def test_a_syntax_error_is_formatted_as_in_python() -> None:
    error = raised(compile, "a b", "x.py", "exec")
    assert describe(error).startswith("SyntaxError: invalid syntax (x.py, line 1)")
    assert '  File "x.py", line 1\n    a b\n' in format_traceback(error)


def test_a_batch_has_a_line_for_each_failed_item() -> None:
    error = BatchFailureError([raised(ship), ValueError("returned,\nnot raised")])
    head, first, second = describe(error).split("\n")
    assert head == "Batch failures:"
    assert first.startswith("KeyError: 'sku' at ")
    assert first.endswith("in ship")
    assert second == "ValueError: returned, | not raised"
    text = format_traceback(error)
    assert text.startswith("  | Batch failures:\n  +-+---------------- 1 ----------------\n")
    assert "in ship" in text
    assert text.count("KeyError: 'sku'") == 1


def test_a_batch_of_many_failures_is_cut() -> None:
    error = BatchFailureError([ValueError("x" * 500)] * 10_000)
    assert len(describe(error)) < MAX_MESSAGE
    assert re.fullmatch(r"… and \d{4} more", describe(error).rsplit("\n", 1)[1])


# -- tracebacks --------------------------------------------------------------------------------------------


def test_a_traceback_is_that_of_python_without_the_frames_above_the_task() -> None:
    error = raised(in_package(ship))
    error.with_traceback(error.__traceback__.tb_next)  # as in a slot: ours is first
    own = error.__traceback__.tb_next
    wanted = "".join(traceback.format_exception(type(error), error, own)).rstrip("\n")
    assert format_traceback(error) == wanted


def test_frames_of_this_package_below_a_task_are_left_out() -> None:
    def call_back() -> None:
        raise OwnError("no")

    def uses_helpers() -> None:
        in_package(in_package(call_back))()

    text = format_traceback(raised(uses_helpers))
    assert re.findall(r"line \d+, in (\w+)\n", text) == ["raised", "uses_helpers", "call_back"]
    assert str(PACKAGE) not in text


def test_a_fault_inside_this_package_shows_its_frames_because_there_is_nothing_else() -> None:
    error = raised(in_package(ship, calls="1 / 0"))
    error.with_traceback(error.__traceback__.tb_next)
    assert "made_up.py" in format_traceback(error)
    assert describe(error) == "ZeroDivisionError: division by zero"


async def test_the_threads_and_loops_that_call_a_task_are_left_out() -> None:
    try:
        await asyncio.to_thread(ship)
    except KeyError as error:
        caught = error
    frames = list(traceback.walk_tb(caught.__traceback__))
    assert any("concurrent" in frame.f_code.co_filename for frame, _ in frames)
    in_thread = caught.__traceback__
    while in_thread is not None and "concurrent" not in in_thread.tb_frame.f_code.co_filename:
        in_thread = in_thread.tb_next  # as if a slot had awaited it
    lines = format_traceback(caught.with_traceback(in_thread)).split("\n")
    assert lines[1].endswith("in ship")


def test_causes_and_groups_are_part_of_a_traceback() -> None:
    def chained() -> None:
        try:
            ship()
        except KeyError as error:
            raise ExceptionGroup("several", [ValueError("one"), raised(ship)]) from error

    text = format_traceback(raised(chained))
    assert text.index("KeyError: 'sku'") < text.index("direct cause") < text.index("ExceptionGroup: several")
    assert "    | ValueError: one" in text
    assert "    | KeyError: 'sku'" in text


def test_a_traceback_of_a_group_is_that_of_python() -> None:
    def fails() -> None:
        try:
            ship()
        except KeyError as error:
            inner = ExceptionGroup("inner", [raised(ship), OwnError("two\nlines")])
            inner.add_note("a note")
            raise ExceptionGroup("outer", [inner, *(ValueError(str(n)) for n in range(20))]) from error

    error = raised(fails)
    assert format_traceback(error) == "".join(traceback.format_exception(error)).rstrip("\n")


def test_a_member_that_was_shown_already_is_shown_with_its_headline_alone() -> None:
    member = raised(ship)
    text = format_traceback(ExceptionGroup("twice", [member, member]))
    assert text.count("KeyError: 'sku'") == 2
    assert text.count("in ship") == 1


def test_source_that_is_missing_is_left_out() -> None:
    namespace: dict[str, Any] = {}
    exec(compile("def ship():\n    raise ValueError('no')\n", "/gone/orders.py", "exec"), namespace)
    assert '  File "/gone/orders.py", line 2, in ship\nValueError: no' in format_traceback(
        raised(namespace["ship"])
    )


# -- hostile exceptions ------------------------------------------------------------------------------------


def _fails(self: Any, *args: Any) -> Any:
    raise SystemExit("hostile")


class Str(str):
    """A return value of `__str__`."""

    __getitem__ = __len__ = __format__ = split = splitlines = replace = encode = partition = _fails  # type: ignore[assignment]


def hostile(**members: Any) -> BaseException:
    """An exception whose class has these members."""
    error: BaseException = type("HostileError", (Exception,), members)("message")
    return error


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise SystemExit("hostile")


def unnamed() -> BaseException:
    class UnnamedError(Exception, metaclass=Meta):
        pass

    return UnnamedError()


def ring() -> BaseException:
    errors = [ValueError(str(number)) for number in range(3)]
    for number, error in enumerate(errors):
        error.__cause__ = errors[number - 1]
    return errors[0]


def long_chain() -> BaseException:
    error = ValueError("root")
    for number in range(20_000):
        outer = ValueError(str(number))
        outer.__context__ = error
        error = outer
    return error


def nested(depth: int) -> BaseException:
    error: Exception = ValueError("leaf")
    for number in range(depth):
        error = ExceptionGroup(f"level {number}", [error])
    return error


def bush(width: int, depth: int) -> BaseException:
    error: Exception = ValueError("leaf")
    for _ in range(depth):
        error = ExceptionGroup("bush", [error] * width)
    return error


def overridden(base: type[BaseException], *args: Any) -> BaseException:
    names = ("__cause__", "__context__", "__suppress_context__", "__traceback__", "__notes__", "exceptions")
    members: dict[str, Any] = {name: property(_fails) for name in names}
    error: BaseException = type("OverriddenError", (base,), members)(*args)
    return error


def with_notes(notes: Any) -> BaseException:
    error = ValueError("noted")
    error.__notes__ = notes
    return error


def recursion() -> None:
    recursion()


HOSTILE: dict[str, Callable[[], BaseException]] = {
    "str raises": lambda: hostile(__str__=_fails),
    "str raises the error itself": lambda: hostile(__str__=lambda self: (_ for _ in ()).throw(self)),
    "str recurses": lambda: hostile(__str__=lambda self: str(self)),
    "str is no text": lambda: hostile(__str__=lambda self: 3),
    "str is a hostile text": lambda: hostile(__str__=lambda self: Str("x")),
    "repr raises": lambda: hostile(__repr__=_fails),
    "attributes raise": lambda: hostile(__getattribute__=_fails),
    "class raises": lambda: hostile(__class__=property(_fails)),
    "hash and equality raise": lambda: hostile(__eq__=_fails, __hash__=_fails, __bool__=_fails),
    "has no name": unnamed,
    "module is no text": lambda: hostile(__module__=7),
    "huge": lambda: ValueError("x" * 3_000_000),
    "huge, many lines": lambda: ValueError("x\n" * 1_000_000),
    "huge type name": lambda: type("E" * 1_000_000, (Exception,), {})("x"),
    "surrogates": lambda: ValueError("\ud800" * 200_000),
    "NUL": lambda: ValueError("a\0b" * 100_000),
    "ring of causes": ring,
    "20,000 contexts": long_chain,
    "1,000 groups deep": lambda: nested(1_000),
    "20,000 members": lambda: ExceptionGroup("wide", [ValueError(str(n)) for n in range(20_000)]),
    "bush of groups": lambda: bush(15, 12),
    "properties in place of causes": lambda: overridden(Exception, "x"),
    "properties in place of members": lambda: overridden(ExceptionGroup, "x", [ValueError("y")]),
    "a bush as the cause of a syntax error": lambda: _caused(SyntaxError("x"), bush(15, 12)),
    "module is a hostile text": lambda: hostile(__module__=Str("graphile_worker")),
    "notes are no list": lambda: with_notes(3),
    "notes are no text": lambda: with_notes([3, None, hostile(__str__=_fails)]),
    "notes are huge": lambda: with_notes(["x" * 1_000_000] * 100),
    "syntax error of nonsense": lambda: SyntaxError("x", ("f", -3, 10**9, "\0" * 1_000_000, 5, -9)),
    "recursion": lambda: raised(recursion),
    "errors of a batch": lambda: BatchFailureError([hostile(__str__=_fails), ring(), nested(1_000)]),
    "odd file name": lambda: raised(eval, compile("1/0", "a\nb\x1b\ud800" * 10_000, "eval")),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_exception_breaks_its_text_or_makes_it_endless(kind: str) -> None:
    def raises() -> None:
        raise HOSTILE[kind]()

    for error in (HOSTILE[kind](), raised(raises)):
        for function, limit in (
            (describe, MAX_MESSAGE), (format_traceback, MAX_TRACEBACK), (summarize, MAX_SUMMARY),
            (message_of, MAX_MESSAGE), (type_name, 500),
        ):  # fmt: skip
            text = function(error)
            assert type(text) is str
            assert 0 < len(text) <= limit, function
            assert "\0" not in text
            text.encode()
        drop_frames(error)


def test_a_message_that_cannot_be_read_is_said_to_be_so() -> None:
    error = hostile(__str__=lambda self: self.response["x"])
    assert describe(error) == (
        f"{__name__}.HostileError: <its message cannot be read: __str__ raised AttributeError>"
    )


def test_what_the_database_cannot_store_is_escaped() -> None:
    assert describe(ValueError("a\0b \ud800")) == r"ValueError: a\x00b \ud800"


def test_a_huge_message_keeps_its_place() -> None:
    def talks() -> None:
        raise ValueError("x" * 5_000_000)

    text = describe(raised(talks))
    assert len(text) == MAX_MESSAGE
    assert text.endswith("in talks")


TEXTS = st.text(st.characters(), max_size=50)
KINDS = [ValueError, KeyError, OSError, SystemExit, KeyboardInterrupt, OwnError, JobError]
ERRORS = st.recursive(
    st.builds(lambda kind, text: kind(text), st.sampled_from(KINDS), TEXTS),
    lambda inner: st.one_of(
        st.builds(
            lambda text, members: BaseExceptionGroup(text, members), TEXTS, st.lists(inner, min_size=1)
        ),
        st.builds(lambda error, cause: _caused(error, cause), inner, inner),
        st.builds(lambda error, note: _noted(error, note), inner, TEXTS),
        st.builds(lambda errors: BatchFailureError(errors), st.lists(inner)),
    ),
    max_leaves=10,
)


def _caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def _noted(error: BaseException, note: str) -> BaseException:
    error.add_note(note)
    return error


@examples(200)
@given(ERRORS)
def test_any_tree_of_exceptions_has_a_text(error: BaseException) -> None:
    for text in (describe(error), format_traceback(error), summarize(error)):
        assert "\0" not in text
        text.encode()
    assert "\n" not in summarize(error)
    assert describe_and_format(error) == (describe(error), format_traceback(error))
    name = type(error).__name__
    if hasattr(builtins, name):
        assert describe(error).startswith(name)


@pytest.mark.parametrize(
    "size", [0, 10, MAX_PART, MAX_PART + 1, MAX_MESSAGE - 10, MAX_MESSAGE, 10 * MAX_MESSAGE]
)
def test_the_fast_path_gives_the_same_texts(size: int) -> None:
    def fails(depth: int) -> None:
        if depth:
            fails(depth - 1)
        raise ValueError("x" * size)

    for depth in (0, 1, 30, 200):
        for _ in range(2):  # the second time from the cache
            error = raised(lambda depth=depth: fails(depth))
            assert describe_and_format(error) == (describe(error), format_traceback(error))


def chained(number: int, outer: BaseException, how: str) -> BaseException:
    """An error that was raised while another was handled, or because of it."""

    def raises() -> None:
        try:
            ship()
        except KeyError as error:
            if how == "cause":
                raise outer from error
            if how == "hidden":
                raise outer from None
            raise outer  # noqa: B904

    error: BaseException = raised(raises)
    return error if number < 2 else chained(number - 1, error, how)


def generated(number: int) -> BaseException:
    """From code that is made anew each time, with other text in the same lines."""
    code = compile(f"def made():\n    raise ValueError({number})\n", "<made>", "exec")
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    return raised(namespace["made"])  # type: ignore[no-any-return]


def raised_here(make: Callable[[], BaseException]) -> BaseException:
    """All from one place, so that they may share what was made for the last one."""

    def raises() -> None:
        raise make()

    return raised(raises)  # type: ignore[no-any-return]


SHARED: dict[str, Callable[[int], BaseException]] = {
    "equal messages": lambda number: raised_here(lambda: ValueError("no")),
    "other messages": lambda number: raised_here(lambda: ValueError(f"no {number}")),
    "other types": lambda number: raised_here(lambda: (ValueError, KeyError, OwnError)[number % 3]("no")),
    "types of equal names": lambda number: raised_here(lambda: type("Made", (Exception,), {})(number // 2)),
    "without a message": lambda number: raised_here(lambda: (ValueError, TypeError)[number % 2]()),
    "a type without a name": lambda number: raised_here(lambda: type("", (Exception,), {"__module__": 3})()),
    "long, then short": lambda number: raised_here(lambda: ValueError("x" * (3 * MAX_PART // (number + 1)))),
    "notes, then none": lambda number: raised_here(lambda: with_notes(["noted"] * (number % 2))),
    "what is to be escaped": lambda number: raised_here(lambda: ValueError("\0\ud800" * (number % 3 * 400))),
    "a cause": lambda number: chained(1, OwnError(number // 2), "cause"),
    "a context": lambda number: chained(1, OwnError(number // 2), "context"),
    "a hidden context": lambda number: chained(1, OwnError(number // 2), "hidden"),
    "many causes": lambda number: chained(6 + number, OwnError(number), "cause"),
    "a long cause": lambda number: chained(2, OwnError("x" * (MAX_PART - 10 + 3 * number)), "cause"),
    "a cause of this package": lambda number: _caused(OwnError("x"), raised(raise_, JobError("no"))),
    "a group as the cause": lambda number: _caused(OwnError("x"), nested(number)),
    "a syntax error as the cause": lambda number: _caused(OwnError("x"), SyntaxError("x", ("f", 1, 2, "y"))),
    "a cause with notes": lambda number: _caused(OwnError("x"), with_notes(["noted"] * (number % 2))),
    "the same error twice": lambda number: ring(),
    "its own cause": lambda number: _caused(error := OwnError("x"), error),
    "generated code": generated,
}


def raise_(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("kind", SHARED)
def test_errors_that_share_texts_have_those_of_their_own(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (0, 1, 1, 2, 3, 4, 4):
        error = SHARED[kind](number)
        texts = describe_and_format(error)
        with monkeypatch.context() as without_sharing:
            without_sharing.setattr(error_text, "_stacks", {})
            assert texts == (describe(error), format_traceback(error))
        drop_frames(error)


@pytest.mark.parametrize(
    "kind", sorted(HOSTILE.keys() - {"str raises the error itself"})
)  # it grows at each look
def test_the_fast_path_gives_the_same_texts_of_hostile_errors(kind: str) -> None:
    for error in (HOSTILE[kind](), raised_here(HOSTILE[kind])):
        assert describe_and_format(error) == (describe(error), format_traceback(error))


def test_errors_that_are_equal_share_their_texts() -> None:
    first, second = (describe_and_format(raised_here(lambda: OwnError("no"))) for _ in range(2))
    assert first[0] is second[0]
    assert first[1] is second[1]


# -- memory ------------------------------------------------------------------------------------------------


class Held:
    pass


def test_frames_are_dropped_from_everything_that_belongs_to_an_error() -> None:
    kept: list[weakref.ref[Held]] = []

    def fails() -> None:
        held = Held()
        kept.append(weakref.ref(held))
        raise ValueError("no")

    group = ExceptionGroup("several", [raised(fails)])
    group.__cause__ = raised(fails)
    batch = BatchFailureError([group])
    batch.__context__ = raised(fails)
    drop_frames(batch)
    gc.collect()
    assert [ref() for ref in kept] == [None] * 3


def test_making_a_text_keeps_nothing_alive() -> None:
    kept: list[weakref.ref[Held]] = []

    def fails() -> None:
        held = Held()
        kept.append(weakref.ref(held))
        raise ValueError("no")

    error = raised(fails)
    describe(error), format_traceback(error)
    drop_frames(error)
    gc.collect()
    assert kept[0]() is None


def test_shared_texts_keep_neither_errors_nor_their_classes_alive() -> None:
    kept: list[weakref.ref[Any]] = []

    def fails() -> None:
        class Error(Exception):
            pass

        try:
            raise Error("cause")
        except Error as error:
            kept.append(weakref.ref(error))
            kept.append(weakref.ref(Error))
            raise Error("outer") from error

    error = raised(fails)
    kept.append(weakref.ref(error))
    describe_and_format(error)
    del error
    gc.collect()
    assert [ref() for ref in kept] == [None] * 3


def test_shared_texts_are_bounded() -> None:
    for number in range(3 * error_text.MAX_CACHED):
        describe_and_format(generated(number))
        assert len(error_text._stacks) <= error_text.MAX_CACHED


def test_the_module_needs_no_more_than_asyncio_has_imported() -> None:
    program = """if True:
        import __future__, asyncio, sys
        before = set(sys.modules)
        exec(open(sys.argv[1]).read(), {"__name__": "graphile_worker.errors.text", "__file__": sys.argv[1]})
        print(sorted(set(sys.modules) - before))
    """
    command = [sys.executable, "-I", "-c", program, error_text.__file__]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
