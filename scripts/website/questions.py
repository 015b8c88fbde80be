"""A hook of mkdocs: the search of the site takes questions, such as "how do I pause a queue"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_suffix(".js")


def on_post_build(*, config: Any, **_: Any) -> None:
    """Called by mkdocs when all files of the site are written."""
    (worker,) = Path(config.site_dir).glob("assets/javascripts/workers/*.js")
    worker.write_text(f"{SCRIPT.read_text()}\n{worker.read_text()}")
