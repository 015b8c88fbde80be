"""Plugins by name: how names are found, what their options are, and what mistakes say."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from graphile_worker import App, make_sync_worker_utils, make_worker_utils, run_once
from graphile_worker.cli.commands.init import _value
from graphile_worker.config import resolve_settings
from graphile_worker.config.plugins import GROUP, load_plugins
from graphile_worker.errors import ConfigError
from graphile_worker.options import WorkerOptions
from support.cases import looped

MODULE = """
from graphile_worker.hooks import Hooks

class Notes:
    made = []

    def __init__(self, *, level: str = "low", sizes: dict | None = None) -> None:
        if level == "refused":
            raise ValueError("level: expected low or high, got 'refused'")
        self.level, self.sizes = level, sizes
        Notes.made.append(self)

    def install(self, hooks: Hooks) -> None:
        hooks.before_add(lambda spec: self.seen.append(spec))

    seen = []

class Demanding:
    def __init__(self, address: str) -> None:
        self.address = address

    def install(self, hooks: Hooks) -> None:
        pass

def make_notes(level: str = "high") -> Notes:
    return Notes(level=level)

ready = Notes()
Notes.made.clear()
nothing = 5
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with plugins in the current folder, which is not on the path."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_notes.py").write_text(MODULE)
    (tmp_path / "broken_notes.py").write_text("1 / 0\n")
    (tmp_path / "needs_more.py").write_text("import there_is_no_such_module\n")
    load_plugins(["own_notes:Notes"], {})
    sys.modules["own_notes"].Notes.made.clear()
    yield sys.modules["own_notes"]
    for name in ("own_notes", "broken_notes", "needs_more"):
        sys.modules.pop(name, None)


def test_a_class_a_function_and_an_object_are_plugins(notes: Any) -> None:
    names = ["own_notes:Notes", "own_notes:make_notes", "own_notes:ready"]
    tables = {"own_notes:Notes.level": "mid", "own_notes:Notes.sizes.small": 1}
    made, by_function, ready = load_plugins(names, tables)
    assert (made.level, made.sizes) == ("mid", {"small": 1})  # type: ignore[attr-defined]
    assert by_function.level == "high"  # type: ignore[attr-defined]
    assert ready is notes.ready


def test_a_plugin_that_the_program_has_made_is_not_made_again(notes: Any) -> None:
    own = notes.Notes()
    assert load_plugins(["own_notes:Notes", own, "own_notes:Notes"], {}) == (own,)


@looped(
    ("name", "tables", "message"),
    [
        ("sentri", {}, "there is no plugin 'sentri'; did you mean 'sentry'?"),
        ("own_notes.Notes", {}, "did you mean 'own_notes:Notes'?"),
        ("wholly_unknown", {}, "known names: .*sentry.*; for a class of your own, write module:attribute"),
        ("no_such_notes:Notes", {}, "there is no module 'no_such_notes'; start the worker in the directory"),
        ("needs_more:Notes", {}, "needs_more:Notes: No module named 'there_is_no_such_module'"),
        ("broken_notes:Notes", {}, "broken_notes cannot be imported: ZeroDivisionError: division by zero"),
        ("own_notes:Nodes", {}, "own_notes has no attribute 'Nodes'; did you mean 'Notes' or 'Demanding'?"),
        ("own_notes:nothing", {}, "own_notes:nothing is not a plugin: an object of type int has no method"),
        ("own_notes:Notes", {"level": "refused"}, "own_notes:Notes: level: expected low or high"),
        ("own_notes:Notes", {"levle": 1}, "own_notes:Notes has no option 'levle'; did you mean 'level'?"),
        ("own_notes:Demanding", {}, "own_notes:Demanding needs address; set plugin_options"),
        ("own_notes:ready", {"level": 1}, "own_notes:ready is an object, not a class, and takes no options"),
    ],
)
@pytest.mark.usefixtures("notes")
def test_a_mistake_says_what_to_do(name: str, tables: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_plugins([name], {f"{name}.{option}": value for option, value in tables.items()})


def test_our_plugins_have_short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphile_worker.metrics.prometheus.REGISTRY", CollectorRegistry())
    ours = [point.name for point in entry_points(group=GROUP) if "graphile_worker" in point.value]
    assert set(ours) == {"loguru", "otel", "prometheus", "sentry", "structlog"}
    assert len(load_plugins(ours, {})) == 5


def test_each_source_sets_plugins_and_their_options(tmp_path: Path) -> None:
    table = 'plugins = ["sentry"]\n[{0}plugin_options.sentry]\ncapture = "all"\nmonitor-cron = true\n'
    (tmp_path / "pyproject.toml").write_text(
        "[tool.graphile-worker]\n" + table.format("tool.graphile-worker.")
    )
    (tmp_path / "own.toml").write_text(table.format(""))
    expected = {"sentry.capture": "all", "sentry.monitor-cron": True}
    for file in ("pyproject.toml", "own.toml"):
        options = resolve_settings({}, {}, tmp_path, file).worker
        assert (options.plugins, options.plugin_options) == (["sentry"], expected)
    environ = {
        "GRAPHILE_WORKER_PLUGINS": "otel, shop.plugins:Audit",
        "GRAPHILE_WORKER_PLUGIN_OPTIONS": "sentry.capture=final,otel.propagate=false",
    }
    settings = resolve_settings({}, environ, tmp_path)
    assert settings.worker.plugins == ["otel", "shop.plugins:Audit"]
    assert settings.worker.plugin_options == expected | {"sentry.capture": "final", "otel.propagate": False}
    over = settings.over({"plugin_options": {"sentry": {"capture": "none", "payloads": True}}}, "app")
    assert over.worker.plugin_options == {"sentry.payloads": True, **settings.worker.plugin_options}
    assert resolve_settings({"plugins": ["loguru"]}, environ, tmp_path).worker.plugins == ["loguru"]


def test_wrong_values_are_refused_where_they_are_set(tmp_path: Path) -> None:
    (tmp_path / "graphile_worker.toml").write_text('plugins = "sentry"\n')
    with pytest.raises(ConfigError, match=r"graphile_worker\.toml: plugins: expected a list of strings"):
        resolve_settings({}, {}, tmp_path)
    with pytest.raises(ConfigError, match="plugins: expected a name, got <"):
        WorkerOptions(plugins=[object()])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="plugin_options: sentry: expected a table of options"):
        WorkerOptions(plugin_options={"sentry": "all"})


def test_the_command_config_hides_what_may_be_secret(tmp_path: Path) -> None:
    environ = {"GRAPHILE_WORKER_PLUGIN_OPTIONS": "sentry.capture=all,own.api_token=abc"}
    shown = _value(resolve_settings({}, environ, tmp_path), "plugin_options")
    assert shown["sentry.capture"] == "all"
    assert "abc" not in str(shown)


async def test_workers_and_clients_load_them(
    notes: Any, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = WorkerOptions(
        connection_string=database_url,
        plugins=["own_notes:Notes"],
        plugin_options={
            "own_notes:Notes": {"level": "high"},
            "own_notes:make_notes": {"level": "mid"},
            "other": {"size": 1},
        },
    )
    async with make_worker_utils(options=options) as utils:
        await utils.add_job("greet")
    assert [spec.task_identifier for spec in notes.Notes.seen] == ["greet"]
    with make_sync_worker_utils(options=options) as blocking:
        await asyncio.to_thread(blocking.add_job, "greet")
    assert len(notes.Notes.seen) == 2

    async def greet() -> None:
        pass

    app = App(tasks=[greet], plugins=["own_notes:make_notes"])
    await run_once(app=app, options=options, plugins=[notes.ready], handle_signals=False)
    # The worker has an object of the class already, so only its function is called.
    assert [plugin.level for plugin in notes.Notes.made] == ["high", "high", "mid"]
    assert "plugin_options: other.size has no effect; the plugins are own_notes:Notes, own_" in caplog.text
