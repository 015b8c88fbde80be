"""An awaitable context manager: `await` it, or enter it with `async with`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

T = TypeVar("T")

NOT_OPEN = "; it is not open yet: use `async with … as …`, or `await` it"


class AwaitableContext(Generic[T]):
    """What `run` and `make_worker_utils` return.

    `x = await run(…)` leaves closing to the caller; `async with run(…) as x` closes at the end. Nothing
    happens before that.
    """

    def __init__(self, open_: Callable[[], Awaitable[T]], close: Callable[[T], Awaitable[Any]]) -> None:
        self._open = open_
        self._close = close
        self._opened: list[T] = []

    if not TYPE_CHECKING:  # type checkers know the attributes and report any other name

        def __getattr__(self, name: str) -> Any:
            # Python itself looks for names with underscores in any object.
            hint = "" if name.startswith("_") else NOT_OPEN
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self
            )

    def __await__(self) -> Generator[Any, Any, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        opened = await self._open()
        self._opened.append(opened)
        return opened

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(self._opened.pop())
