"""The context variables of the engine: those of the program that starts it, and what plugins set for it.

asyncio tasks inherit the context in which they are created, so it is enough to create the first ones in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class EngineContext:
    """Starts parts of the engine in its context; in that of the caller, if no plugin sets anything."""

    def __init__(self, variables: Sequence[Callable[[], object]]) -> None:
        """`variables`: functions that set context variables."""
        self._context: Context | None = copy_context() if variables else None
        for function in variables:
            self.call(function)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function that starts tasks or threads."""
        return function() if self._context is None else self._context.run(function)

    async def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine that starts some."""
        if self._context is None:
            return await coroutine
        return await asyncio.get_running_loop().create_task(coroutine, context=self._context.copy())
