"""No test depends on how quick the machine is: it waits for events, and has patience.

Whatever a test needs of the clock says why in a comment, on its line or above it:

    await asyncio.sleep(0.06)  # timing: longer than the prefetch; more is as good

That holds for sleeps, for time limits shorter than `PATIENCE`, and for measured times with an upper bound.
A lower bound needs no comment: load makes everything later. Nor does a sleep or a wait in a `while`
loop, which looks for something again and again, or a sleep that is as good as for ever.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.working import PATIENCE, SELDOM

TESTS = Path(__file__).parent.parent
MARK = "# timing: "
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}
"""Of `time`, and of an event loop."""
LIMITED = {"until", "until_gone", "until_inside", "wait_for", "wait_until", "wait", "join", "communicate"}
"""Methods and functions that take a limit by the name `timeout`."""
DEPENDS = re.compile(
    r"\bsleep\((?!0\))|timeout[=(](?!PATIENCE\)|\d{3})|asyncio\.wait_for|\.(wait|join)\([\dA-Z]"
    r"|\b(monotonic|perf_counter|process_time|thread_time|time)\(\)"
)
"""What is looked for is in no other file; to parse them all takes seconds."""
KNOWN = {"PATIENCE": PATIENCE, "SELDOM": SELDOM}

Numbers = dict[str, float]


def number_of(node: ast.expr | None, names: Numbers) -> float | None:
    """The value of an expression of numbers and of constants of the module; None: not known."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return names.get(name)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as op, right=right):
            first, second = number_of(left, names), number_of(right, names)
            if first is None or not second:
                return None
            return first * second if isinstance(op, ast.Mult) else first / second
    return None


def constants(tree: ast.Module) -> Numbers:
    names = dict(KNOWN)
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if (number := number_of(value, names)) is not None:
                    names[name] = number
    return names


def reads_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS


def is_measured(node: ast.AST, times: set[str]) -> bool:
    """Whether it is the difference of two moments, or the name of one."""
    return (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and reads_clock(node.left)) or (
        isinstance(node, ast.Name) and node.id in times
    )


def name_of(node: ast.expr) -> str:
    """`asyncio.sleep`; of what is not a name, only the last part."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{owner}.{name}"
        case ast.Attribute(attr=name):
            return name
    return ""


def limit_of(name: str, call: ast.Call) -> ast.expr | None:
    """The time limit of a call, if it has one."""
    *_, last = name.split(".")
    if name == "asyncio.timeout" and call.args:
        return call.args[0]
    if name == "asyncio.wait_for" and len(call.args) > 1:
        return call.args[1]
    if last in ("wait", "join") and len(call.args) == 1:
        return call.args[0]
    if last in LIMITED or name.startswith("subprocess."):
        return next((word.value for word in call.keywords if word.arg == "timeout"), None)
    return None


class Finder(ast.NodeVisitor):
    """Collects what depends on time, with its line."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[tuple[ast.stmt | ast.expr, str]] = []
        self._names = constants(tree)
        self._times = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and is_measured(node.value, set())
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self._loops = 0
        self.visit(tree)

    def visit_While(self, node: ast.While) -> None:
        self._loops += 1
        self.generic_visit(node)
        self._loops -= 1

    def visit_Call(self, node: ast.Call) -> None:
        name = name_of(node.func)
        if name in ("asyncio.sleep", "time.sleep") and not self._loops:
            seconds = number_of(node.args[0], self._names)
            if seconds is not None and 0 < seconds < PATIENCE:
                self.found.append((node, "sleeps: wait for an event or a state, with support.working.until"))
        limit = number_of(limit_of(name, node), self._names)
        if limit is not None and limit < PATIENCE and not self._loops:
            self.found.append((node, f"has a time limit of {limit:g} s: use support.working.PATIENCE"))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, sign, right in zip(sides, node.ops, node.comparators, strict=False):
            smaller = left if isinstance(sign, ast.Lt | ast.LtE) else right
            if isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and is_measured(smaller, self._times):
                self.found.append((node, "bounds a measured time: count, or wait for an event"))
        self.generic_visit(node)


def unexplained(source: str) -> Iterator[tuple[int, str]]:
    """What depends on time and does not say why."""
    if not DEPENDS.search(source):
        return
    lines = source.splitlines()
    for node, what in Finder(ast.parse(source)).found:
        first = node.lineno - 1
        while first and lines[first - 1].lstrip().startswith("#"):
            first -= 1
        if not any(MARK in line for line in lines[first : node.end_lineno]):
            yield node.lineno, what


def test_what_depends_on_time_says_why() -> None:
    wrong = [
        f"{path.relative_to(TESTS)}:{line}: {what}"
        for pattern in ("test_*.py", "conftest.py", "check_*.py")
        for path in sorted(TESTS.rglob(pattern))
        for line, what in unexplained(path.read_text())
    ]
    assert wrong == [], f"mend it, or say why it must be so in a comment with {MARK!r}:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        "await asyncio.sleep(0.1)",
        "SHORT = 0.5\ntime.sleep(2 * SHORT)",
        "for _ in range(3):\n    await asyncio.sleep(1)",
        "asyncio.timeout(PATIENCE / 2)",
        "await asyncio.wait_for(event.wait(), 30)",
        "await until(is_over, timeout=20.0)",
        "thread.join(timeout=10)",
        "process.wait(10)",
        "subprocess.run(['true'], timeout=10)",
        "assert time.monotonic() - began < 5",
        "assert 0.2 <= loop.time() - began < LIMIT",
        "took = time.perf_counter() - began\nassert 10 > took",
    ],
)
def test_it_is_found_unless_it_says_why(source: str) -> None:
    assert len(list(unexplained(source))) == 1
    *before, last = source.split("\n")
    assert list(unexplained("\n".join([*before, f"{last}  {MARK}it must be so"]))) == []


@pytest.mark.parametrize(
    "source",
    [
        "await asyncio.sleep(0)",
        "await asyncio.sleep(3600)",
        "await asyncio.sleep(seconds)",
        "while not is_over():\n    time.sleep(0.01)",
        "while not is_over():\n    changed.wait(0.5)",
        "asyncio.timeout(PATIENCE)",
        "await until(is_over)",
        "subprocess.run(['true'], timeout=10 * PATIENCE)",
        "assert time.monotonic() - began >= 5",
        "assert time.monotonic() < deadline",
        "assert LIMIT < time.monotonic() - began",
        "', '.join(names)",
    ],
)
def test_what_no_load_can_disturb_needs_no_reason(source: str) -> None:
    assert list(unexplained(source)) == []
