"""The options `queue_name` of `@task`, as a function of the payload, and `queue_width`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError, PayloadError
from ..spec import check_queue_name, check_width
from .signature import is_coroutine_function

if TYPE_CHECKING:
    from .task import AnyTask

OPTION = "queue_name"
WIDTH = "queue_width"
QueueNameFunction = Callable[[Any], str | None]


def queue_width_of(options: Mapping[str, Any]) -> int | None:
    """What `@task(queue_width=…)` says; None if it says nothing. Raises InvalidArgumentError."""
    width: int | None = options.get(WIDTH)
    if width is not None:
        check_width(WIDTH, width)
    return width


def check_queue_name_function(function: object) -> None:
    """Reject a function that cannot be called when a job is added."""
    if callable(function) and is_coroutine_function(function):
        raise InvalidArgumentError(OPTION, "the function must not be async: it is called in every add")


def queue_names_by(function: QueueNameFunction, task: AnyTask) -> QueueNameFunction:
    """A function that takes any payload that can be added, and returns the queue of the job."""

    def queue_name_for(payload: object) -> str | None:
        try:
            name = function(task.as_received(payload))
        except PayloadError as error:
            raise InvalidArgumentError("payload", str(error).removeprefix("payload ")) from error
        except Exception as error:
            raise InvalidArgumentError(
                OPTION,
                f"the function of the task {task.identifier!r} failed: {type(error).__name__}: {error}",
            ) from error
        if name is not None:
            try:
                check_queue_name(name)
            except InvalidArgumentError as error:
                problem = str(error).removeprefix(f"{OPTION}: ")
                message = f"what the function of the task {task.identifier!r} returned: {problem}"
                raise InvalidArgumentError(OPTION, message) from None
        return name

    return queue_name_for
