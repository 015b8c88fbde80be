"""Every page, in both themes and both sizes: nothing to complain about, nothing too wide, axe is content."""

from __future__ import annotations

import pytest

from browser.axe import violations
from browser.conftest import SIZES, THEMES, Visit
from browser.pages import address_of, page_paths
from browser.site import Site


@pytest.mark.parametrize("path", page_paths())
@pytest.mark.parametrize("size", SIZES)
def test_the_page_can_be_shipped(lively: Site, visit: Visit, path: str, size: str) -> None:
    address = address_of(lively, path)
    complaints: list[str] = []
    for theme in THEMES:
        visitor = visit(lively, size=size, theme=theme)
        page = visitor.go(address)
        assert page.locator("h1").count() == 1
        if overflow := visitor.overflow():
            complaints.append(f"{theme}: {overflow}")
        complaints += [f"{theme}: {violation}" for violation in violations(page)]
    assert not complaints, "\n".join(complaints)
