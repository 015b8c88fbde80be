"""A hook of mkdocs: puts pages of docs/reference that mkdocs.yml does not name into the section Reference.

Those pages are generated, so their list would be out of date otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SECTION = "Reference"


def on_config(config: Any) -> Any:
    """Called by mkdocs when it has read its configuration."""
    (section,) = [entry[SECTION] for entry in config["nav"] if isinstance(entry, dict) and SECTION in entry]
    named = {page for entry in section for page in entry.values()}
    folder = Path(config["docs_dir"])
    found = sorted(path.relative_to(folder).as_posix() for path in folder.glob("reference/**/*.md"))
    last = max(index for index, entry in enumerate(section) if "reference/" in str(entry))
    section[last + 1 : last + 1] = [{_title(folder / page): page} for page in found if page not in named]
    return config


def _title(page: Path) -> str:
    """The first heading of a page."""
    headings = (line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("# "))
    return next(headings, f"# {page.stem}").removeprefix("# ").replace("`", "")
