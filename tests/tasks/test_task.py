"""Tasks: which functions qualify, how they are called, and how payloads are decoded."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest

from graphile_worker.errors import PayloadError, TaskLoadError
from graphile_worker.tasks import JobHelpers, Task, task
from graphile_worker.values.spec import JobSpec
from support.cases import looped

if TYPE_CHECKING:
    from somewhere_else import Invisible  # type: ignore[import-not-found]


@dataclass
class Letter:
    to: str
    copies: int = 1


def decode(made: Task[Any, Any], raw: str) -> Any:
    return made._decode(raw)


# -- making ------------------------------------------------------------------------------------------------


def test_a_bare_decorator_names_the_task_like_the_function() -> None:
    @task
    async def send(payload: Letter, helpers: JobHelpers) -> None:
        """Sends it."""

    assert send.identifier == "send"
    assert (send.is_async, send._takes) == (True, 2)
    assert send.__doc__ == "Sends it."
    assert not send._is_named


def test_an_identifier_and_options_can_be_given() -> None:
    @task("mail/send", queue_name="mail", max_attempts=3, priority=0, flags=["slow"])
    def send(payload: Letter) -> None: ...

    assert send.identifier == "mail/send"
    assert send.spec_defaults == {"queue_name": "mail", "max_attempts": 3, "priority": 0, "flags": ["slow"]}


def test_a_task_can_still_be_called_like_its_function() -> None:
    @task(queue_name="mail")
    def double(payload: int) -> int:
        return 2 * payload

    assert double(21) == 42


def test_a_spec_made_from_a_task_takes_over_its_options_and_lets_them_be_overridden() -> None:
    @task("mail/send", queue_name="mail", max_attempts=3)
    def send(payload: Letter) -> None: ...

    letter = Letter("a@example.com")
    assert send.spec(letter, priority=5) == JobSpec(
        "mail/send", letter, queue_name="mail", max_attempts=3, priority=5
    )
    assert send.spec(letter, max_attempts=9).max_attempts == 9


@pytest.mark.parametrize(
    ("identifier", "complaint"),
    [("", "must not be empty"), ("x" * 129, "has 129 characters"), ("a\0b", "NUL")],
)
def test_an_identifier_that_the_database_cannot_hold_is_refused(identifier: str, complaint: str) -> None:
    with pytest.raises(TaskLoadError, match=complaint) as caught:

        @task(identifier)
        def send() -> None: ...

    assert caught.value.path == __file__


def test_an_option_that_is_unknown_or_out_of_bounds_is_refused() -> None:
    with pytest.raises(TaskLoadError, match=r"max_attempts: must be from 1 to 32767, got 0"):

        @task(max_attempts=0)
        def once() -> None: ...

    with pytest.raises(TaskLoadError, match=r"no option 'queue'; known: max_attempts, job_key"):

        @task(queue="mail")  # type: ignore[call-overload, untyped-decorator]
        def send() -> None: ...


def test_attributes_of_a_callable_object_do_not_hide_those_of_the_task() -> None:
    class Odd:
        def __init__(self) -> None:
            self.spec = self.prepare = self.identifier = "mine"

        def __call__(self, payload: Any) -> None: ...

    made = task("odd")(Odd())
    assert made.identifier == "odd"
    assert made.spec(1) == JobSpec("odd", 1)


def test_decorating_twice_is_refused() -> None:
    with pytest.raises(TaskLoadError, match="is a task already"):

        @task
        @task
        def send() -> None: ...


# -- signatures --------------------------------------------------------------------------------------------


class Sender:
    async def __call__(self, payload: Letter) -> None: ...

    def send(self, payload: Letter, helpers: JobHelpers) -> None: ...


def no_arguments() -> None: ...
def only_payload(payload: Any) -> None: ...
def both(payload: Any, helpers: Any) -> None: ...
def optional_helpers(payload: Any, helpers: Any = None) -> None: ...
def own_default(payload: Any, retries: int = 3) -> None: ...
def any_arguments(*args: Any) -> None: ...
def only_helpers(helpers: JobHelpers) -> None: ...
def extra_keyword(payload: Any, *, verbose: bool = False) -> None: ...


@looped(
    ("function", "passed"),
    [
        (no_arguments, ()),
        (only_payload, ("P",)),
        (both, ("P", "H")),
        (optional_helpers, ("P", "H")),
        (own_default, ("P",)),
        (any_arguments, ("P", "H")),
        (only_helpers, ("H",)),
        (extra_keyword, ("P",)),
    ],
)
def test_a_function_is_given_what_it_takes(function: Any, passed: tuple[str, ...]) -> None:
    @functools.wraps(function)
    def recording(*args: Any) -> tuple[Any, ...]:
        return args

    made = task(recording)
    assert made._invoke("P", "H") == passed  # type: ignore[arg-type]
    assert made._takes == len(passed)


def test_callable_objects_bound_methods_and_partial_objects_can_be_tasks() -> None:
    sender = Sender()
    from_object: Any = task("object")(sender)
    assert (from_object.is_async, from_object._takes) == (True, 1)
    assert decode(from_object, '{"to": "a"}') == Letter("a")

    from_method = task(sender.send)
    assert (from_method.identifier, from_method.is_async, from_method._takes) == ("send", False, 2)
    assert decode(from_method, '{"to": "a"}') == Letter("a")

    async def copy(copies: int, payload: Letter) -> None: ...

    from_partial: Any = task("partial")(functools.partial(copy, 3))
    assert (from_partial.is_async, from_partial._takes) == (True, 1)
    assert decode(from_partial, '{"to": "a"}') == Letter("a")


def generator(payload: Any) -> Iterator[int]:
    yield 1


async def async_generator(payload: Any) -> Any:
    yield 1


def three(payload: Any, helpers: Any, more: Any) -> None: ...
def keyword(payload: Any, *, needed) -> None: ...  # type: ignore[no-untyped-def]
def swapped(helpers: JobHelpers, payload: Any) -> None: ...
async def swapped_names(helpers, payload) -> None: ...  # type: ignore[no-untyped-def]
async def swapped_default(helpers: JobHelpers, payload: Any = None) -> None: ...


@looped(
    ("wrong", "complaint"),
    [
        (three, r"three requires 3 arguments \(payload, helpers, more\); a task takes \(\), \(payload\) or"),
        (keyword, r"keyword requires the keyword argument 'needed'"),
        (swapped, r"swapped takes the helpers first; the order is \(payload, helpers\)"),
        (swapped_names, r"swapped_names takes the helpers first; the order is \(payload, helpers\)"),
        (swapped_default, r"swapped_default takes the helpers first"),
        (generator, r"generator is a generator"),
        (async_generator, r"async_generator is a generator"),
        (Letter, r"the class Letter cannot be a task"),
        (Sender.send, r"send is a method without its object"),
        (lambda payload: None, r"has no name to use as identifier"),
    ],
)
def test_what_cannot_be_a_task_is_refused_with_file_and_line(wrong: Any, complaint: str) -> None:
    with pytest.raises(TaskLoadError, match=complaint) as caught:
        task(wrong)
    assert caught.value.path == __file__
    assert caught.value.line is not None
    assert str(caught.value).startswith(f"{__file__}:{caught.value.line}: ")


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TaskLoadError, match=r"expected a function, got 5"):
        task(5)  # type: ignore[call-overload]


# -- payloads ----------------------------------------------------------------------------------------------


def test_the_payload_is_decoded_to_the_annotation_and_a_misfit_names_the_field() -> None:
    @task
    def send(payload: Letter) -> None: ...

    assert send.payload_annotation is Letter
    assert decode(send, '{"to": "a", "copies": 2}') == Letter("a", 2)
    with pytest.raises(PayloadError, match=r"\$\.copies"):
        decode(send, '{"to": "a", "copies": "many"}')


def test_without_an_annotation_the_payload_is_plain_json() -> None:
    @task
    def send(payload, helpers):  # type: ignore[no-untyped-def]
        ...

    assert decode(send, '{"a": [1, null]}') == {"a": [1, None]}


def test_the_payload_is_not_read_at_all_if_the_task_takes_none() -> None:
    assert decode(task(no_arguments), "not json") is None
    assert decode(task(only_helpers), "not json") is None


def test_a_payload_that_may_be_none_is_none_where_a_job_was_given_none() -> None:
    @task
    def send(payload: Letter | None) -> None: ...

    @task
    def ping(payload: None) -> None: ...

    assert decode(send, "{}") is None
    assert decode(send, '{"to": "a"}') == Letter("a")
    assert decode(ping, "{}") is None
    with pytest.raises(PayloadError):
        decode(send, '{"from": "a"}')


def test_constraints_in_the_annotation_are_kept() -> None:
    @task
    def count(payload: Annotated[int, msgspec.Meta(gt=0)]) -> None: ...

    with pytest.raises(PayloadError):
        decode(count, "0")


def test_a_type_defined_inside_a_function_is_found() -> None:
    class Local(msgspec.Struct):
        a: int

    @task
    def send(payload: Local) -> None: ...

    assert decode(send, '{"a": 1}') == Local(1)


def test_a_type_that_is_defined_later_is_found_when_it_is_needed() -> None:
    assert decode(early, '{"a": 1}') == Later(1)


@task
def early(payload: Later) -> None: ...


class Later(msgspec.Struct):
    a: int


def test_an_annotation_that_only_type_checkers_can_see_is_an_error_that_names_it() -> None:
    @task
    def send(payload: Invisible) -> None: ...

    with pytest.raises(TaskLoadError, match=r"annotation 'Invisible' cannot be resolved .*TYPE_CHECKING"):
        send._prepare()


def test_helpers_and_return_type_need_not_be_importable() -> None:
    @task
    def send(payload: Letter, helpers: Invisible) -> Invisible: ...

    assert decode(send, '{"to": "a"}') == Letter("a")


def test_an_annotation_that_json_cannot_become_is_an_error_with_file_and_line() -> None:
    @task
    def send(payload: dict[int, Letter] | list[Letter] | set[int]) -> None: ...

    with pytest.raises(TaskLoadError, match="send: payloads cannot be decoded to") as caught:
        send._prepare()
    assert caught.value.path == __file__
