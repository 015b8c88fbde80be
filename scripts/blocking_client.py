"""`python -m scripts.blocking_client` writes the blocking client from the asynchronous one.

Each method of `WorkerUtils` that is not written by hand in `SyncClient` becomes one of `SyncWorkerUtils`,
with the same signature, overloads and docstring; so do the methods of its members, such as `utils.jobs`.
`JobHandle` becomes `SyncJobHandle`. A test compares the files with what this script would write.
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
MEMBERS = ("jobs", "queues", "workers", "limits", "schedules", "history", "statistics")
TYPES = {
    "UserConnection": "BlockingConnection",
    "Connection": "BlockingConnection",
    "JobHandle": "SyncJobHandle",
    "JobReference": "SyncJobReference",
    "AddedTask": "SyncAddedTask",
    **{f"{name.capitalize()}Client": f"Sync{name.capitalize()}Client" for name in MEMBERS},
}
LONG = ("migrate", "cleanup", "sweep")
"""Methods that can take long by nature."""
LONG_WITH = ("exact", "all")
"""Arguments with which a method scans a table."""
NOT_LONG = ("pause", "resume")
"""Methods in which they mean something else."""
OVERLOADED_BY_TASK = ("add_job",)
"""Methods with an overload whose parameters are those of the task; type checkers cannot compare them."""
HEADER = '''"""{title}

{written}
"""

from __future__ import annotations

import builtins
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

{bases}

if TYPE_CHECKING:
{imports}
{variables}

class {name}:
    """{docstring}"""

{body}
'''
DOCSTRING = """\
Adds and manages jobs from blocking code. Made by `make_sync_worker_utils`; safe for many threads.

    {members}

    Methods that take a `connection` use it, and so its transaction, in place of one of the client's own. It
    is a connection of psycopg, psycopg2 or Django, or a Session or Connection of SQLAlchemy. The client never
    begins, commits or rolls back your transaction.
    """
OF_TYPING = (
    "Any", "Arguments", "ParamSpec", "R", "T", "TypeVar", "Unpack", "overload", "Self", "cached_property",
)  # fmt: skip
VARIABLES = '\nR = TypeVar("R")\nArguments = ParamSpec("Arguments")\n'
Method = ast.AsyncFunctionDef | ast.FunctionDef


def files() -> dict[Path, str]:
    """The text of each file."""
    return {
        CLIENT / "sync_worker_utils.py": formatted(worker_utils()),
        CLIENT / "sync_handle.py": formatted(handle()),
        **{CLIENT / "sync_members" / f"{name}.py": formatted(member(name)) for name in MEMBERS},
    }


def worker_utils() -> str:
    sources = [ast.parse((CLIENT / f"{name}.py").read_text()) for name in ("worker_utils", "adding")]
    found = _class(sources[0], "WorkerUtils")
    methods = [*_methods(_class(sources[1], "AddingClient")), *_methods(found)]
    by_hand = _method_names(ast.parse((CLIENT / "sync_client.py").read_text()), "SyncClient")
    body = _bodies(methods, by_hand, "utils")
    written = WRITTEN_BY.format("`worker_utils.py` and `adding.py`").replace("that file", "those files")
    return HEADER.format(
        title="SyncWorkerUtils: the client for blocking code.",
        written=written,
        bases="\n".join(
            (
                "from .sync_calls import read_here",
                "from .sync_client import SyncClient",
                "from .sync_handle import handle_of",
            )
        ),
        imports=_indented("\n".join(_imports(sources, body, "."))),
        variables=VARIABLES,
        name="SyncWorkerUtils(SyncClient)",
        docstring=DOCSTRING.format(members=_paragraphs(found)[1].strip()),
        body=_indented(body),
    )


def member(name: str) -> str:
    """The blocking form of a member, such as `utils.jobs`."""
    source = ast.parse((CLIENT / "members" / f"{name}.py").read_text())
    own = f"{name.capitalize()}Client"
    found = _class(source, own)
    by_hand: set[str] = set()
    bases, base = "from ..sync_calls import SyncCalls, read_here", ""
    start = "def __init__(self, calls: SyncCalls) -> None:\n    self._calls = calls\n\n"
    if name == "jobs":
        by_hand = _method_names(ast.parse((CLIENT / "sync_following.py").read_text()), "SyncFollowing")
        bases, base, start = "from ..sync_following import SyncFollowing", "(SyncFollowing)", ""
    body = start + _bodies(_methods(found), by_hand, f"utils.{name}")
    docstring = (ast.get_docstring(source) or "").replace("`utils.", "The blocking `utils.")
    return HEADER.format(
        title=docstring,
        written=WRITTEN_BY.format(f"`members/{name}.py`"),
        bases=bases,
        imports=_indented("\n".join(_imports([source], body, ".."))) or "    pass",
        variables='\nR = TypeVar("R")\n' if "[R]" in body else "",
        name=f"Sync{own}{base}",
        docstring=_in_words(ast.get_docstring(found, clean=False) or ""),
        body=_indented(body),
    )


def _bodies(methods: list[Method], by_hand: set[str], owner: str) -> str:
    """The methods that are not written by hand; those of members are called as `utils.jobs.…`."""
    chosen = [each for each in methods if each.name not in by_hand]
    overloaded = {method.name for method in chosen if _is("overload", method)}
    with_handle = {method.name for method in chosen if "JobHandle" in ast.unparse(method.returns or method)}
    texts = []
    for method in chosen:
        if _is("overload", method):
            body = method.body
        elif isinstance(method, ast.FunctionDef) or _delegation(method) is not None:
            body = _same_body(method)
        else:
            body = _body(method, owner, method.name in overloaded, method.name in with_handle)
        text = ast.unparse(_blocking(method, body))
        if method.name in OVERLOADED_BY_TASK and not _is("overload", method):
            text = text.replace("(", "(  # type: ignore[misc]\n    ", 1)
        texts.append(text)
    return _in_words("\n\n".join(texts))


def _methods(found: ast.ClassDef) -> list[Method]:
    return [
        each
        for each in found.body
        if isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef)
        and not each.name.startswith("_")
        and not _is("property", each)
    ]


def _in_words(text: str) -> str:
    for name in ("JobHandle", "WorkerUtils"):
        text = re.sub(rf"(?<=`){name}\b", f"Sync{name}", text)
    return text


def _paragraphs(found: ast.ClassDef) -> list[str]:
    return (ast.get_docstring(found, clean=False) or "").split("\n\n")


def handle() -> str:
    """The handle calls methods that both clients have, so that only `async` and `await` are in the way."""
    text = (CLIENT / "handle.py").read_text()
    first, rest = text.split("\n", 1)
    for old, new in (
        (r"\b(JobHandle|JobReference|JobFollower|HasJobs|Following|Followed)\b", r"Sync\1"),
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


def _blocking(method: Method, body: list[ast.stmt]) -> ast.AST:
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


def _is(decorator: str, method: Method) -> bool:
    return any(isinstance(each, ast.Name) and each.id == decorator for each in method.decorator_list)


def _delegation(method: Method) -> str | None:
    """The call of a member, if a method is only short for it."""
    if len(method.body) != 2 or not isinstance(method.body[1], ast.Return):
        return None
    text = ast.unparse(method.body[1]).removeprefix("return await ")
    return text if text.startswith(tuple(f"self.{name}." for name in MEMBERS)) else None


def _same_body(method: Method) -> list[ast.stmt]:
    """The body of a method that does not wait for the database itself."""
    text = "\n".join(ast.unparse(each) for each in method.body[1:])
    for old, new in (
        (r"\bawait ", ""),
        (r"from \.members\.", "from .sync_members."),
        (r"from \.\.handle ", "from ..sync_handle "),
        (r"\((self\._connections)(, self\.\w+)?\)", "(self._calls)"),
    ):
        text = re.sub(old, new, text)
    return [method.body[0], *ast.parse(text).body]


def _body(method: Method, owner: str, is_overloaded: bool, has_handle: bool) -> list[ast.stmt]:
    names = {argument.arg for argument in (*method.args.args, *method.args.kwonlyargs)}
    connection = "connection" if "connection" in names else "None"
    is_bulk = method.args.kwarg is not None and "BulkOptions" in ast.unparse(method.args)
    limit = ""
    if method.name in LONG or (is_bulk and "filter" not in names):
        limit = ", is_long=True"
    elif is_bulk:
        limit = ", is_long=filter is not None"
    elif method.name not in NOT_LONG and (scans := [name for name in LONG_WITH if name in names]):
        limit = f", is_long={scans[0]}"
    call = f"{owner}.{method.name}({', '.join(_passed_on(method.args))})"
    lines = [f"{name} = read_here({name})" for name in _iterables(method.args)]
    if is_bulk:
        lines.append(f"options = self._calls.bulk_options({connection}, options)")
    if is_overloaded:  # its own parameters match none of the overloads
        kind = "Job" if has_handle else ast.unparse(method.returns or method)
        lines.append(f"result: {kind} = self._calls.run_any({connection}, lambda utils: {call}{limit})")
        lines.append("return handle_of(self, result)" if has_handle else "return result")
    else:
        lines.append(f"return self._calls.run({connection}, lambda utils: {call}{limit})")
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

    def visit_alias(self, node: ast.alias) -> ast.alias:
        return ast.alias(TYPES.get(node.name, node.name), node.asname)


def _imports(modules: list[ast.Module], body: str, here: str) -> Iterator[str]:
    """The imports of the original that the annotations need, and those of the types that replace others."""
    used = set(re.findall(r"\w+", body))
    yield f"from {here}.database.connections.connection import BlockingConnection"
    yield f"from {here}sync_handle import SyncJobHandle, SyncJobReference"
    yield f"from {here}task_arguments import SyncAddedTask"
    if here == ".":
        yield from (f"from .sync_members.{name} import Sync{name.capitalize()}Client" for name in MEMBERS)
    for module in modules:
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                names = sorted({alias.name for alias in node.names} & used - set(OF_TYPING) - set(TYPES))
                if names and node.col_offset <= 4:  # not those inside functions
                    yield f"from {'.' * node.level}{node.module} import {', '.join(names)}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))


def main() -> None:
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
