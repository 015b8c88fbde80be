"""What classes say about themselves: the texts below their fields, and their annotations as written."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

TEXTS = Path(__file__).with_name("texts")


def field_texts(cls: type) -> dict[str, str]:
    """The docstring below each field of a class, by the field's name."""
    found: dict[str, str] = {}
    body = _body(cls)
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = _text(following)
    return found


def field_types(cls: type) -> dict[str, str]:
    """The annotation of each field that the class itself defines, as it is written in the code."""
    return {
        statement.target.id: ast.unparse(statement.annotation)
        for statement in _body(cls)
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def first_paragraph(thing: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def text(name: str) -> str:
    """What a page says before its tables."""
    return (TEXTS / name).read_text(encoding="utf-8")


def cell(content: str) -> str:
    """Text that may stand in a Markdown table."""
    return content.replace("|", "\\|")


def _body(cls: type) -> list[ast.stmt]:
    definition = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    return definition.body if isinstance(definition, ast.ClassDef) else []


def _text(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split())
    return ""
