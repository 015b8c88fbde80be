"""The reference of errors: the tree of classes, what each means and what it carries."""

from __future__ import annotations

import inspect
import re

from graphile_worker import errors
from graphile_worker.errors import GraphileWorkerError

from .members import cell, first_paragraph

HEAD = """\
# Errors

Everything this package raises on purpose is a `GraphileWorkerError` from `graphile_worker.errors`. The message names
the thing and the way out; the parts are fields.

```python
from graphile_worker import JobSpec
from graphile_worker.errors import InvalidArgumentError

try:
    JobSpec("greet", priority=100_000)
except InvalidArgumentError as error:
    print(error)
```

<!-- prints -->

```text
priority: must be from -32768 to 32767, got 100000
```

What a task raises is not among them: it fails that job, and the worker goes on. See
[errors and retries](../errors-and-retries.md). What the database says and nobody has better words for comes out as
asyncpg's own error.

## The tree
"""


def page(_: object = None) -> str:
    tree = _tree(GraphileWorkerError)
    lines = [HEAD, "```text", *(f"{'    ' * depth}{cls.__name__}" for depth, cls in tree), "```", ""]
    lines += ["## What they mean", "", "| error | raised when | fields |", "|---|---|---|"]
    lines += [
        f"| `{cls.__name__}` | {cell(first_paragraph(cls))} | {', '.join(f'`{name}`' for name in _fields(cls))} |"
        for _, cls in tree
    ]
    lines += ["", _others()]
    return "\n".join(lines) + "\n"


def _tree(cls: type[Exception], depth: int = 0) -> list[tuple[int, type[Exception]]]:
    found = [(depth, cls)]
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            found += _tree(child, depth + 1)
    return found


def _fields(cls: type[Exception]) -> list[str]:
    """What the class and those above it set on themselves."""
    found: list[str] = []
    for base in reversed(cls.__mro__):
        if base.__module__ == errors.__name__ and "__init__" in base.__dict__:
            found += re.findall(r"self\.(\w+)(?:: [^=]+)? = ", inspect.getsource(base.__init__))
    return list(dict.fromkeys(found))


def _others() -> str:
    problem = errors.CrontabProblem
    names = ", ".join(f"`{name}`" for name in problem.__dataclass_fields__)
    return (
        f"`CrontabError.problems` holds `{problem.__name__}` objects with {names} and `place`. Python's own classes "
        "are bases too\nwhere that fits: `InvalidArgumentError` is a `ValueError`, `ExtensionMissingError` a "
        "`LookupError`."
    )
