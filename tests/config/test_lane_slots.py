"""The option `lanes`: slots by the name of the lane, from every source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphile_worker import App, Lane, task
from graphile_worker.config import resolve_settings
from graphile_worker.errors import ConfigError
from graphile_worker.options import WorkerOptions
from graphile_worker.runner.build import WorkerBuilder
from support.cases import looped


@task(lane="video")
async def transcode() -> None:
    """A task in a lane."""


async def mail() -> None:
    """A task in the main lane."""


def lanes_of(**arguments: Any) -> dict[str, int]:
    builder = WorkerBuilder(arguments)  # type: ignore[arg-type]
    builder._load()
    return {lane.name: lane.concurrency for lane in builder.lanes}


def test_later_sources_override_single_lanes(tmp_path: Path) -> None:
    (tmp_path / "graphile_worker.toml").write_text("[lanes]\nvideo = 2\nreports = 3\nbulk-mail = 1\n")
    environ = {"GRAPHILE_WORKER_LANES": "reports=4"}
    settings = resolve_settings({"lanes": {"video": 5}}, environ, tmp_path)
    assert settings.worker.lanes == {"video": 5, "reports": 4, "bulk-mail": 1}
    app = App(tasks=[transcode], lanes=[Lane("video", concurrency=9), Lane("other", concurrency=9)])
    over = settings.over(app.options, "app x")
    assert over.worker.lanes == {"video": 5, "reports": 4, "bulk-mail": 1, "other": 9}
    assert over.provenance["lanes"].startswith("app x, ")


@looped(
    ("arguments", "slots"),
    [
        ({"lanes": [Lane("video", concurrency=2)]}, 2),
        ({"lanes": {"video": 3}}, 3),
        ({"options": WorkerOptions(lanes={"video": 4})}, 4),
        ({"options": WorkerOptions(lanes={"video": 4}), "lanes": [Lane("video", concurrency=2)]}, 2),
        ({"app": App(lanes=[Lane("video", concurrency=5)])}, 5),
        ({"app": App(lanes=[Lane("video", concurrency=5)]), "lanes": {"video": 6}}, 6),
        ({"app": App(lanes=[Lane("video", tasks=["mail"])], concurrency=7), "lanes": {"video": 6}}, 6),
    ],
)
def test_every_place_to_set_slots(arguments: dict[str, Any], slots: int) -> None:
    found = lanes_of(task_list=[transcode, mail], **arguments)
    assert found["video"] == slots


@pytest.mark.parametrize("text", ["video", "video=", "=2", "video=x", "video=0"])
def test_wrong_slots_in_the_environment_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lanes|LANES"):
        resolve_settings({}, {"GRAPHILE_WORKER_LANES": text}, tmp_path)
