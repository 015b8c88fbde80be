"""Where a form leads back to."""

from __future__ import annotations

from .call import Call


def return_url(call: Call, text: str, otherwise: str) -> str:
    """The path below the dashboard's root that a form names as `back`; `otherwise` for anything else.

    It may begin with the root, as addresses in pages do. Nothing leads to another site.
    """
    root = call.url("")
    if root and text.startswith(root + "/"):
        text = text[len(root) :]
    if not text.startswith("/") or text.startswith("//") or "\\" in text or not text.isprintable():
        return otherwise
    return text
