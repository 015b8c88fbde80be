"""Many cases in one test: all of them are tried, and a failure names each that failed.

For tables of cheap calls. As cases of `pytest.mark.parametrize`, they would spend more time on fixtures than
on what they test.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest


class Cases:
    """Use it as a context manager around the loop, and `with cases(name):` around each case."""

    def __init__(self) -> None:
        self._tried = 0
        self._errors: list[Exception] = []

    @contextmanager
    def __call__(self, *name: Any) -> Iterator[None]:
        self._tried += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            named = error if isinstance(error, Exception) else AssertionError(str(error))
            named.add_note(f"in the case {', '.join(map(repr, name))}")
            self._errors.append(named.with_traceback(error.__traceback__))

    def __enter__(self) -> Cases:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        if self._errors:
            raise ExceptionGroup(f"{len(self._errors)} of {self._tried} cases failed", self._errors)
        assert self._tried, "there was no case"


def looped(
    names: str | Sequence[str], values: Iterable[Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Like `pytest.mark.parametrize`, but all cases are one test and share its fixtures."""
    arguments = (names,) if isinstance(names, str) else tuple(names)
    cases_of = [(value,) if isinstance(names, str) else tuple(value) for value in values]

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def run(**fixtures: Any) -> None:
                with Cases() as cases:
                    for case in cases_of:
                        with cases(*case):
                            await test(**fixtures, **dict(zip(arguments, case, strict=True)))
        else:

            @wraps(test)
            def run(**fixtures: Any) -> None:
                with Cases() as cases:
                    for case in cases_of:
                        with cases(*case):
                            test(**fixtures, **dict(zip(arguments, case, strict=True)))

        signature = inspect.signature(test)
        left = [each for name, each in signature.parameters.items() if name not in arguments]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
