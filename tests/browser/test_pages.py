"""Every page, in both themes and both sizes: nothing to complain about, nothing too wide, axe is content."""

from __future__ import annotations

import pytest

from browser.axe import COLOUR_RULES, RULES, violations
from browser.conftest import SIZES, THEMES, Visit
from browser.pages import address_of, page_paths
from browser.site import Site


@pytest.mark.parametrize("path", page_paths())
def test_the_page_can_be_shipped(lively: Site, visit: Visit, path: str) -> None:
    visitor = visit(lively)
    address = address_of(lively, path)
    complaints: list[str] = []
    for size, (width, height) in SIZES.items():
        visitor.page.set_viewport_size({"width": width, "height": height})
        page = visitor.go(address)
        assert page.locator("h1").count() == 1
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            found = violations(page, RULES if theme == THEMES[0] else COLOUR_RULES)
            if overflow := visitor.overflow():
                found.append(overflow)
            complaints += [f"{size}, {theme}: {complaint}" for complaint in found]
    assert not complaints, "\n".join(complaints)
