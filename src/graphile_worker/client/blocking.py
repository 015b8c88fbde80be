"""Makes blocking methods of asynchronous ones, for `SyncWorkerUtils` and its members.

`blocking` gives a method the same arguments, docstring and result. A type checker sees them, too: it takes
them from the asynchronous class, whose parameter is the type of the connections that its methods take. It
cannot do that for overloads. Those are written out under `like`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Iterator
from types import FunctionType
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from ..errors import InvalidArgumentError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Function = TypeVar("Function", bound=Callable[..., Any])
Arguments = ParamSpec("Arguments")


class Calls(Protocol):
    """Where the calls of a blocking client run."""

    @property
    def bound(self) -> Any:
        """The client of a bound one, whose calls run in the caller's thread; else None."""

    def run(
        self, connection: Any, call: Callable[[Any], Coroutine[Any, Any, Any]], *, is_long: bool = False
    ) -> Any:
        """The result of a call. A long one has no time limit."""


class SyncMember:
    """A member of the blocking client, such as `utils.queues`."""

    _member: ClassVar[str]
    """Its name; empty for the client itself."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls


class Blocking(Protocol[Arguments, T_co]):
    """A method with these arguments, as type checkers see it."""

    @overload
    def __get__(self, instance: None, owner: Any) -> Callable[Concatenate[Any, Arguments], T_co]: ...

    @overload
    def __get__(self, instance: object, owner: Any) -> Callable[Arguments, T_co]: ...


def blocking(
    method: Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, T]], *, is_long: bool | str = False
) -> Blocking[Arguments, T]:
    """The blocking form of a method.

    `is_long`: whether it can take long by nature, or the argument with which it can.
    """
    declared = _declared(cast(FunctionType, method))
    name = declared.__name__
    takes_connection = "connection" in (declared.__kwdefaults__ or ())

    @functools.wraps(declared)
    def call(self: SyncMember, *given: Any, **keywords: Any) -> Any:
        connection = keywords.pop("connection", None) if takes_connection else None
        arguments = [read_here(each) for each in given]
        named = {name: read_here(each) for name, each in keywords.items()}
        _prepare_steps(named, in_background=connection is None and self._calls.bound is None)
        has_no_limit = bool(named.get(is_long)) if isinstance(is_long, str) else is_long
        member = self._member

        def run(utils: Any) -> Coroutine[Any, Any, Any]:
            return getattr(getattr(utils, member) if member else utils, name)(*arguments, **named)  # type: ignore[no-any-return]

        return self._calls.run(connection, run, is_long=has_no_limit)

    return cast("Blocking[Arguments, T]", call)


def _declared(method: FunctionType) -> FunctionType:
    """The method with the types and the docstring of the blocking client, for `help` and `inspect`."""
    found = FunctionType(
        method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__
    )
    found.__qualname__, found.__kwdefaults__ = method.__qualname__, method.__kwdefaults__
    found.__doc__ = re.sub(r"`(?=WorkerUtils\b)", "`Sync", method.__doc__ or "")
    found.__annotations__ = {
        name: re.sub(r"\b(ConnectionT|UserConnection)\b", "BlockingConnection", text)
        for name, text in method.__annotations__.items()
    }
    return found


def _prepare_steps(options: dict[str, Any], *, in_background: bool) -> None:
    """The options of a change in steps: `on_step` may use the same client."""
    if isinstance(options.get("stop"), asyncio.Event):
        raise InvalidArgumentError(
            "stop", "is an asyncio.Event, which belongs to an event loop; give a threading.Event"
        )
    on_step = options.get("on_step")
    if inspect.iscoroutinefunction(on_step):
        raise InvalidArgumentError("on_step", "is a coroutine function; give a plain function")
    if on_step is not None and in_background:
        options["on_step"] = lambda *report: asyncio.to_thread(on_step, *report)


def like(method: Callable[..., Any], *, is_long: bool | str = False) -> Callable[[Function], Function]:
    """Over overloads: makes them the blocking form of the method. Their body is a docstring for editors."""

    def made(declared: Function) -> Function:
        form: Any = blocking(method, is_long=is_long)
        form.__module__, form.__qualname__ = declared.__module__, declared.__qualname__
        return cast("Function", form)

    return made


def read_here(value: T) -> T:
    """The value; that of a generator as a list, so that it runs in the caller's thread."""
    return cast(T, list(value)) if isinstance(value, Iterator) else value
