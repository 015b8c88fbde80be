"""Tasks as type checkers see them when a job is added.

`add_job` takes a task and then its payload and options. A parameter of one of these types tells a type
checker what may follow the task, before it looks at the payload. So the message about a wrong payload says
which type was expected.
"""

from __future__ import annotations

from typing import ParamSpec, Protocol, TypeVar

Arguments = ParamSpec("Arguments")
R_co = TypeVar("R_co", covariant=True)


class AddedTask(Protocol[Arguments, R_co]):
    """A task by the arguments of `WorkerUtils.add_job` after it, and the type of what it returns."""

    def _add(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None: ...

    def decode_result(self, raw: str, /) -> R_co: ...


class SyncAddedTask(Protocol[Arguments, R_co]):
    """The same for `SyncWorkerUtils.add_job`."""

    def _add_blocking(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None: ...

    def decode_result(self, raw: str, /) -> R_co: ...
