"""StackRequests: asks what a call does, and waits for the note that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..tasks.stacks import TaskStack
from .messages import StackNote

ANSWER_WITHIN = 3.0
"""Seconds; code that holds the interpreter keeps a process from answering."""


class StackRequests:
    """Requests without an answer, by the number of the call."""

    def __init__(self) -> None:
        self._asked: dict[int, asyncio.Future[TaskStack]] = {}

    async def ask(self, number: int, send: Callable[[], object]) -> TaskStack | None:
        """The answer to what `send` asks; None if there is none in time."""
        answer = self._asked.get(number)
        if answer is None:
            answer = self._asked[number] = asyncio.get_running_loop().create_future()
            send()
        try:
            done, _ = await asyncio.wait((answer,), timeout=ANSWER_WITHIN)
        finally:
            if self._asked.get(number) is answer:
                del self._asked[number]
        return answer.result() if done else None

    def answered(self, note: StackNote) -> None:
        """An answer has arrived."""
        answer = self._asked.get(note.number)
        if answer is not None and not answer.done():
            answer.set_result(note.stack)
