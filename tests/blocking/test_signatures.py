"""The blocking client has every method of the asynchronous one, with the same arguments."""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Callable
from importlib import import_module
from typing import Any

from scripts.reference.api_page import MEMBERS

from graphile_worker import JobHandle, SyncJobHandle, SyncWorkerUtils, WorkerUtils
from graphile_worker.results import JobReference, SyncJobReference
from support.cases import looped


def class_of(cls: type, name: str) -> type:
    """The class of a member, such as `utils.jobs`."""
    annotation: str = inspect.get_annotations(getattr(cls, name).func)["return"]
    module = import_module(f"graphile_worker.client.members.{name}")
    found: type = getattr(module, annotation.removesuffix("[ConnectionT]"))
    return found


OTHER_TYPES = {
    "AbstractAsyncContextManager": "Iterator",
    "AddedTask": "SyncAddedTask",
    "AsyncIterator": "Iterator",
    "Connection": "BlockingConnection",
    "ConnectionT": "BlockingConnection",
    "JobHandle": "SyncJobHandle",
    "JobReference": "SyncJobReference",
    "UserConnection": "BlockingConnection",
}
PAIRS: list[tuple[type, type]] = [
    (WorkerUtils, SyncWorkerUtils),
    (JobHandle, SyncJobHandle),
    (JobReference, SyncJobReference),
    *((class_of(WorkerUtils, name), class_of(SyncWorkerUtils, name)) for name in MEMBERS),
]
OWN = {"pool"}
"""Attributes of the asynchronous client that the blocking one does not have."""


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def blocking(annotation: object) -> str:
    """An annotation as the blocking client writes it."""
    text = str(annotation)
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = OTHER_TYPES.get(node.id, node.id)
    return ast.unparse(tree)


def shape(function: Callable[..., Any], convert: Callable[[object], str]) -> tuple[object, ...]:
    signature = inspect.signature(function)
    parameters = [
        (each.name, each.kind, each.default, convert(each.annotation))
        for each in signature.parameters.values()
        if each.name not in ("self", "cls")
    ]
    return parameters, convert(signature.return_annotation)


def members() -> list[tuple[type, type, str]]:
    return [
        (there, here, name)
        for there, here in PAIRS
        for name in sorted(public(there) - OWN)
        if callable(getattr(there, name))
    ]


def test_no_method_is_missing_and_none_is_more() -> None:
    for there, here in PAIRS:
        assert public(here) == public(there)


@looped(("there", "here", "name"), members())
def test_arguments_overloads_and_results_are_the_same(there: type, here: type, name: str) -> None:
    theirs, ours = getattr(there, name), getattr(here, name)
    assert not inspect.iscoroutinefunction(ours)
    assert ours.__doc__
    assert "`WorkerUtils" not in ours.__doc__
    actual = shape(ours, str)
    if name == "with_pg_client":
        actual = (actual[0], str(actual[1]).replace("SyncConnection", "BlockingConnection"))
    assert actual == shape(theirs, blocking)
    overloads = [shape(each, blocking) for each in typing.get_overloads(theirs)]
    assert [shape(each, str) for each in typing.get_overloads(ours)] == overloads


def test_methods_with_overloads_show_the_beginning_of_the_docstring_in_an_editor() -> None:
    for there, here, name in members():
        if not typing.get_overloads(getattr(here, name)):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(here)))
        *_, written = (
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name
        )
        beginning = (inspect.getdoc(getattr(there, name)) or "").partition("\n\n")[0].split()
        assert (ast.get_docstring(written) or "").split()[: len(beginning)] == [
            word.replace("`WorkerUtils", "`SyncWorkerUtils") for word in beginning
        ]
