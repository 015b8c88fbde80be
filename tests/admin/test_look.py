"""The frame and the macros: what every page looks like."""

from __future__ import annotations

import gzip
import re
from importlib.resources import files

import httpx

STATIC = files("graphile_worker.admin").joinpath("static")
TEMPLATES = files("graphile_worker.admin").joinpath("templates")
MOST_BYTES = 30 * 1024


def test_what_the_browser_loads_is_small() -> None:
    packed = {file.name: len(gzip.compress(file.read_bytes(), 9)) for file in STATIC.iterdir()}
    assert sum(packed.values()) < MOST_BYTES, packed


def test_templates_have_no_inline_script_or_style_and_escape_everything() -> None:
    pages = [*TEMPLATES.glob("*.html"), *TEMPLATES.glob("**/*.html")]  # type: ignore[attr-defined]
    for page in pages:
        text = page.read_text()
        found = re.findall(r"\|\s*safe\b|\bstyle=|<style|\son\w+=\"|autoescape false|javascript:", text)
        assert not found, (page.name, found)


def test_scripts_never_make_markup_of_data() -> None:
    for file in STATIC.iterdir():
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", file.read_text()
        )
        assert not found, (file.name, found)


def test_text_can_be_read_in_both_themes() -> None:
    css = STATIC.joinpath("look.css").read_text()
    tokens = {
        name: (light, dark)
        for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)
    }
    pairs = [(text, ground) for text in ("text", "muted", "faint", "accent") for ground in ("bg", "panel")]
    pairs += [(tone, f"{tone}-soft") for tone in ("ok", "warn", "bad", "idle", "run", "accent")]
    pairs += [("muted", "idle-soft"), ("text", "accent-soft"), ("panel", "accent"), ("bad", "panel")]
    for theme in (0, 1):
        low = {
            pair: round(found, 2)
            for pair in pairs
            if (found := _contrast(tokens[pair[0]][theme], tokens[pair[1]][theme])) < 4.5
        }
        assert not low, ("light", "dark")[theme]


async def test_a_page_has_landmarks_and_one_heading(http: httpx.AsyncClient) -> None:
    page = (await http.get("/")).text
    for landmark in ('<header class="top"', "<nav", "<main", "<footer", 'class="skip"', "<h1"):
        assert page.count(landmark) == 1, landmark


async def test_the_theme_and_the_zone_come_from_the_browser(http: httpx.AsyncClient) -> None:
    http.cookies.update({"gw_theme": "dark", "gw_zone": "Europe%2FBerlin"})
    page = (await http.get("/")).text
    assert '<html lang="en" data-theme="dark">' in page
    assert "Times in Europe/Berlin" in page


async def test_cookies_cannot_put_anything_into_the_page(http: httpx.AsyncClient) -> None:
    http.cookies.update({"gw_theme": "x><script>", "gw_zone": "<b>"})
    page = (await http.get("/")).text
    assert "data-theme=" not in page.split("<head>")[0]
    assert "Times in UTC" in page


def _contrast(first: str, second: str) -> float:
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
