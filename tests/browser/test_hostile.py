"""Attacks in every field, on every page: no dialog, no violation, no foreign request, no overflow."""

from __future__ import annotations

import os

import pytest
from scripts.lively.addresses import is_about_one_thing

from browser.attacks import ATTACKS
from browser.conftest import Visit
from browser.pages import addresses_of, page_paths
from browser.site import Site, Visitor

pytestmark = pytest.mark.timeout(1800)  # some pages are visited two hundred times

STEP = int(os.environ.get("HOSTILE_STEP", "16"))
"""Pages about one thing are visited for every 16th attack; HOSTILE_STEP=1 visits all."""
FIND_INJECTED = """() => {
  const found = []
  for (const element of document.querySelectorAll("*")) {
    if (["IFRAME", "OBJECT", "EMBED", "BASE", "PORTAL", "PLAINTEXT", "MATH"].includes(element.tagName))
      found.push(element.tagName)
    if (element.tagName === "SCRIPT" && element.type !== "application/json" && !element.nonce)
      found.push("SCRIPT without a nonce")
    for (const {name, value} of element.attributes) {
      if (name.startsWith("on") || name === "style") found.push(`${element.tagName} ${name}=${value}`)
      if (["href", "src", "action", "formaction", "data"].includes(name)) {
        const scheme = new URL(value, location.href).protocol
        if (!["http:", "https:"].includes(scheme)) found.push(`${element.tagName} ${name}=${value}`)
      }
    }
  }
  return found.slice(0, 5)
}"""


def examine(visitor: Visitor, address: str) -> list[str]:
    """What is wrong with one page."""
    page = visitor.go(address)
    found = [f"{address}: injected {each}" for each in page.evaluate(FIND_INJECTED)]
    if overflow := visitor.overflow():
        found.append(f"{address}: {overflow}")
    if page.locator("h1").count() != 1:
        found.append(f"{address}: not one h1")
    return found


@pytest.mark.parametrize("path", page_paths())
def test_attacks_are_shown_as_text(hostile: Site, visit: Visit, path: str) -> None:
    visitor = visit(hostile, size="phone")
    complaints: list[str] = []
    for address in addresses_of(hostile, path)[::STEP]:
        with visitor.faults.expecting(409, 413):  # what cannot be undone, and a form for a megabyte
            complaints += examine(visitor, address)
        complaints += [f"{address}: {fault}" for fault in visitor.faults.found]
        visitor.faults.found.clear()
    assert not complaints, "\n".join(complaints[:20])


@pytest.mark.parametrize("path", page_paths())
def test_attacks_in_the_query_string_are_text(hostile: Site, visit: Visit, path: str) -> None:
    """Every parameter that the page has links or fields for, and the usual ones."""
    if is_about_one_thing(path):
        pytest.skip("visited with attacks as the name")
    visitor = visit(hostile, size="phone")
    page = visitor.go(path)
    names = page.evaluate(
        "() => [...new Set([...document.querySelectorAll('main [name]')].map(field => field.name))]"
    )
    complaints: list[str] = []
    with visitor.faults.expecting(400, 404):
        for attack in ATTACKS[:: 2 * STEP]:
            query = page.evaluate(
                "([names, value]) => new URLSearchParams(names.map(name => [name, value])).toString()",
                [[*names, "q", "after", "notice", "range"], attack],
            )
            complaints += examine(visitor, f"{path}?{query}")
    assert not complaints, "\n".join(complaints[:20])
