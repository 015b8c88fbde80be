"""`python -m scripts.blocking_client` writes the blocking client from the asynchronous one.

Each method of `WorkerUtils` that is not written by hand in `SyncClient` becomes one of `SyncWorkerUtils`,
with the same signature, overloads and docstring. `JobHandle` becomes `SyncJobHandle`. A test compares the
files with what this script would write.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "src" / "graphile_worker" / "client"
WRITTEN_BY = "Written by `make reference` from {}: change that file, not this one."
TYPES = {
    "UserConnection": "BlockingConnection",
    "Connection": "BlockingConnection",
    "JobHandle": "SyncJobHandle",
    "JobReference": "SyncJobReference",
    "AddedTask": "SyncAddedTask",
}
LONG = ("migrate", "cleanup", "sweep_stale_workers")
"""Methods that can take long by nature."""
LONG_WITH = ("exact", "all")
"""Arguments with which a method scans a table."""
OVERLOADED_BY_TASK = ("add_job",)
"""Methods with an overload whose parameters are those of the task; type checkers cannot compare them."""
HEADER = '''"""SyncWorkerUtils: the client for blocking code.

{written}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from .sync_client import SyncClient, read_here

if TYPE_CHECKING:
{imports}

R = TypeVar("R")
Arguments = ParamSpec("Arguments")


class SyncWorkerUtils(SyncClient):
    """Adds and manages jobs from blocking code. Made by `make_sync_worker_utils`; safe for many threads.

    Methods that take a `connection` use it, and so its transaction, in place of one of the client's own. It
    is a connection of psycopg, psycopg2 or Django, or a Session or Connection of SQLAlchemy. The client never
    begins, commits or rolls back your transaction.
    """
'''
OF_TYPING = ("Any", "Arguments", "ParamSpec", "R", "T", "TypeVar", "Unpack", "overload", "Self")


def files() -> dict[Path, str]:
    """The text of each file."""
    return {
        CLIENT / "sync_worker_utils.py": formatted(worker_utils()),
        CLIENT / "sync_handle.py": formatted(handle()),
    }


def worker_utils() -> str:
    own = ast.parse((CLIENT / "worker_utils.py").read_text())
    sources = [own, *(ast.parse((CLIENT / "methods" / f"{name}.py").read_text()) for name in _modules(own))]
    by_hand = _method_names(ast.parse((CLIENT / "sync_client.py").read_text()), "SyncClient")
    methods = [
        method
        for source in sources
        for method in next(each for each in source.body if isinstance(each, ast.ClassDef)).body
        if isinstance(method, ast.AsyncFunctionDef)
        and not method.name.startswith("_")
        and method.name not in by_hand
    ]
    overloaded = {method.name for method in methods if _is_overload(method)}
    texts = (_text(method, method.name in overloaded) for method in methods)
    body = "\n\n".join(texts).replace("`JobHandle`", "`SyncJobHandle`")
    imports = "\n".join(_imports(sources, set(re.findall(r"\w+", body))))
    written = WRITTEN_BY.format("`worker_utils.py` and `methods/`").replace("that file", "those files")
    return HEADER.format(written=written, imports=_indented(imports)) + "\n" + _indented(body) + "\n"


def _text(method: ast.AsyncFunctionDef, is_overloaded: bool) -> str:
    text = ast.unparse(_blocking(method, is_overloaded))
    if method.name in OVERLOADED_BY_TASK and not _is_overload(method):
        text = text.replace("(", "(  # type: ignore[misc]\n    ", 1)
    return text


def _modules(own: ast.Module) -> list[str]:
    """The modules of `methods/`, in the order of the base classes."""
    modules = {
        name.name: node.module.removeprefix("methods.")
        for node in own.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("methods.") and node.module
        for name in node.names
    }
    return [modules[ast.unparse(base)] for base in _class(own, "WorkerUtils").bases] + ["base"]


def handle() -> str:
    """The handle calls methods that both clients have, so that only `async` and `await` are in the way."""
    text = (CLIENT / "handle.py").read_text()
    first, rest = text.split("\n", 1)
    for old, new in (
        (r"\b(JobHandle|JobReference|JobFollower|Followed)\b", r"Sync\1"),
        (r"\bWorkerUtils\b", "SyncWorkerUtils"),
        (r"\bworker_utils\b", "sync_worker_utils"),
        (r"\bAsyncIterator\b", "Iterator"),
        (r"\b(async|await) ", ""),
    ):
        first, rest = re.sub(old, new, first), re.sub(old, new, rest)
    written = WRITTEN_BY.format("`handle.py`")
    return f'{first.removesuffix(chr(34) * 3)}\n\n{written}\n"""\n{rest}'


def formatted(text: str) -> str:
    """As `make format` would leave it."""
    return _ruff("format", "-", text=_ruff("check", "--fix", "--select=I,F401", "--quiet", "-", text=text))


def _ruff(*arguments: str, text: str) -> str:
    name = str(CLIENT / "sync_worker_utils.py")
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", name]
    done = subprocess.run(command, input=text, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout


def _class(module: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name)


def _method_names(module: ast.Module, name: str) -> set[str]:
    return {node.name for node in _class(module, name).body if isinstance(node, ast.FunctionDef)}


def _blocking(method: ast.AsyncFunctionDef, is_overloaded: bool) -> ast.AST:
    body = method.body if _is_overload(method) else _body(method, is_overloaded)
    made: ast.AST = ast.FunctionDef(
        name=method.name,
        args=method.args,
        body=body,
        decorator_list=method.decorator_list,
        returns=method.returns,
        lineno=0,
        col_offset=0,
    )
    made = _OtherTypes().visit(made)
    return ast.fix_missing_locations(made)


def _is_overload(method: ast.AsyncFunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in method.decorator_list)


def _body(method: ast.AsyncFunctionDef, is_overloaded: bool) -> list[ast.stmt]:
    names = {argument.arg for argument in (*method.args.args, *method.args.kwonlyargs)}
    connection = "connection" if "connection" in names else "None"
    is_bulk = method.args.kwarg is not None and "BulkOptions" in ast.unparse(method.args)
    limit = ""
    if method.name in LONG or (is_bulk and "filter" not in names):
        limit = ", is_long=True"
    elif is_bulk:
        limit = ", is_long=filter is not None"
    elif scans := [name for name in LONG_WITH if name in names]:
        limit = f", is_long={scans[0]}"
    call = f"utils.{method.name}({', '.join(_passed_on(method.args))})"
    lines = [f"{name} = read_here({name})" for name in _iterables(method.args)]
    if is_bulk:
        lines.append(f"options = self._bulk_options({connection}, options)")
    if is_overloaded:  # its own parameters match none of the overloads
        kind = ast.unparse(method.returns or method)
        lines.append(f"result: {kind} = self._run_any({connection}, lambda utils: {call}{limit})")
        lines.append("return result")
    else:
        lines.append(f"return self._run({connection}, lambda utils: {call}{limit})")
    return [method.body[0], *ast.parse("\n".join(lines)).body]


def _iterables(arguments: ast.arguments) -> Iterator[str]:
    """Arguments that may be generators, which must not run in the client's thread."""
    for argument in (*arguments.args, *arguments.kwonlyargs):
        if argument.annotation is not None and "Iterable[" in ast.unparse(argument.annotation):
            yield argument.arg


def _passed_on(arguments: ast.arguments) -> Iterator[str]:
    yield from (argument.arg for argument in arguments.args if argument.arg != "self")
    for argument in arguments.kwonlyargs:
        if argument.arg != "connection":
            yield f"{argument.arg}={argument.arg}"
    if arguments.kwarg is not None:
        yield f"**{arguments.kwarg.arg}"


class _OtherTypes(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(TYPES.get(node.id, node.id), node.ctx)


def _imports(modules: list[ast.Module], used: set[str]) -> Iterator[str]:
    """The imports of the original that the annotations need, and those of the types that replace others."""
    yield from (
        "from ..database.connections.connection import BlockingConnection",
        "from .sync_handle import SyncJobHandle",
        "from .task_arguments import SyncAddedTask",
    )
    for depth, module in enumerate(modules):
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                names = sorted({alias.name for alias in node.names} & used - set(OF_TYPING) - set(TYPES))
                level = node.level - 1 if depth and node.level else node.level  # all but the first are deeper
                if names and node.col_offset <= 4:  # not those inside functions
                    yield f"from {'.' * level}{node.module} import {', '.join(names)}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))


def main() -> None:
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
