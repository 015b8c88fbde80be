"""Options and the places that know them: every option of a worker or a process, on every face."""

from __future__ import annotations

import ast
import inspect
import json
import os
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from graphile_worker import App
from graphile_worker.cli.commands.init import _value
from graphile_worker.cli.main import graphile_worker
from graphile_worker.cli.run import _options_from
from graphile_worker.cli.support.client import load_settings
from graphile_worker.config import Settings, combine, resolve_settings
from graphile_worker.config.settings import ProcessOptions, ProcessOptionValues, Setting, known_settings
from graphile_worker.errors import ConfigError
from graphile_worker.options import HistoryOptions, NodeOptions, RecoveryOptions, WorkerOptions
from graphile_worker.values.option_groups import GROUPS
from graphile_worker.values.options import OptionsWithPlugins
from support.command_line import clean_environment

SETTINGS = {
    name: setting
    for name, setting in known_settings().items()
    if setting.owner in (WorkerOptions, ProcessOptions)
}
OF_WORKER = [name for name, setting in SETTINGS.items() if setting.owner is WorkerOptions]
WITH_FLAG = {
    "connection_string", "schema", "max_pool_size", "prepared_statements", "concurrency", "lanes",
    "executors", "poll_interval", "task_directory", "crontab_file", "grace", "plugins", "wait_for_database",
    "forbidden_flags", "accepted_flags", "flag_allowlist",
}  # fmt: skip
"""Options of a worker that are flags, too. All options of a process are."""
SAMPLES: dict[str, Any] = {
    "schema": "jobs",
    "heartbeat_interval": 3.0,
    "min_reset_locked_interval": 100.0,
    "history": "all",
    "lanes": {"video": 2},
    "executors": {"process.processes": 4},
    "plugins": ["sentry"],
    "forbidden_flags": ["slow", "Slow"],
    "accepted_flags": ["gpu"],
    "flag_allowlist": ["gpu", "eu"],
    "plugin_options": {"sentry.capture": "all"},
    "task_directory": "/srv/tasks",
    "crontab_file": "/srv/crontab",
    "app": "shop.worker:app",
    "log_format": "json",
    "log_level": "debug",
    "log_levels": {"httpx": "warning"},
}
NEEDED: dict[str, dict[str, Any]] = {
    "local_queue": {"local_queue.size": 5},
    "local_queue.refetch_delay": {"local_queue.size": 5, "local_queue.refetch_delay.duration": 1.0},
}
"""What else has to be set for the options of a group."""


def sample(setting: Setting) -> Any:
    """A value that is not the default."""
    if setting.name in SAMPLES:
        return SAMPLES[setting.name]
    if setting.kind is bool:
        return not setting.default
    if setting.kind is str:
        return f"another {setting.name}"
    return setting.kind((setting.default or 0) + 1)


def values(setting: Setting) -> dict[str, Any]:
    """Values by dotted name: the sample, and what it needs."""
    return NEEDED.get(setting.name.rpartition(".")[0], {}) | {setting.name: sample(setting)}


def nested(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same as a program writes it: tables for dotted names."""
    whole: dict[str, Any] = {}
    for name, value in found.items():
        *groups, last = name.split(".")
        place = whole
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return whole


def as_text(value: Any) -> str:
    """A value as a variable has it."""
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{json.dumps(name)} = {as_toml(each)}" for name, each in value.items()) + " }"
        )
    return json.dumps(value)


def found_in(setting: Setting, settings: Settings) -> Any:
    value: Any = settings.worker if setting.owner is WorkerOptions else settings.process
    for part in setting.path:
        value = getattr(value, part)
    return value


def of_worker(options: WorkerOptions) -> Settings:
    return Settings(options, ProcessOptions(), {})


def in_call(setting: Setting, folder: Path) -> Settings:
    return resolve_settings(nested(values(setting)), {}, folder)


def in_call_over_a_preset(setting: Setting, folder: Path) -> Settings:
    return of_worker(combine(WorkerOptions(), nested(values(setting))))


def in_object(setting: Setting, folder: Path) -> Settings:
    group, *rest = setting.path
    if group not in GROUPS:
        return of_worker(WorkerOptions.from_mapping(nested(values(setting))))
    value = GROUPS[group](**{rest[0]: sample(setting)})
    return resolve_settings({group: value}, {}, folder)


def in_file(setting: Setting, folder: Path) -> Settings:
    lines = [f"{name} = {as_toml(value)}\n" for name, value in values(setting).items()]
    (folder / "graphile_worker.toml").write_text("".join(lines))
    return resolve_settings({}, {}, folder)


def in_environment(setting: Setting, folder: Path) -> Settings:
    environ = {SETTINGS[name].variable: as_text(value) for name, value in values(setting).items()}
    return resolve_settings({}, environ, folder)


def in_app(setting: Setting, folder: Path) -> Settings:
    app = App(**nested(values(setting)))
    return resolve_settings({}, {}, folder).over(app.options, "app")


def in_django(setting: Setting, folder: Path) -> Settings:
    conf = pytest.importorskip("graphile_worker.contrib.django.conf")
    if setting.name == "schema":
        return of_worker(conf.DjangoSettings(schema=sample(setting)).worker_options)
    return of_worker(conf.DjangoSettings(options=nested(values(setting))).worker_options)


def in_pydantic(setting: Setting, folder: Path) -> Settings:
    models = pytest.importorskip("graphile_worker.contrib.pydantic")
    return of_worker(models.WorkerSettings(**nested(values(setting))).to_options())


def on_command_line(setting: Setting, folder: Path) -> Settings:
    name, value = setting.name, sample(setting)
    parameter = next(
        each for each in graphile_worker.params if each.name == {"log_levels": "log_level"}.get(name, name)
    )
    texts = [f"{key}={each}" for key, each in value.items()] if isinstance(value, dict) else value
    texts = texts if isinstance(texts, list) else [texts]
    if parameter.metavar == "MS":
        texts = [int(value * 1000)]
    flag = parameter.opts[-1]
    words = [flag] if setting.kind is bool else [word for text in texts for word in (flag, str(text))]
    context = graphile_worker.make_context("graphile-worker", words)
    return load_settings(context, _options_from(context.params))


FACES: dict[str, tuple[Callable[[Setting, Path], Settings], list[str]]] = {
    "call": (in_call, list(SETTINGS)),
    "call over a preset": (in_call_over_a_preset, OF_WORKER),
    "object": (in_object, OF_WORKER),
    "file": (in_file, list(SETTINGS)),
    "environment": (in_environment, list(SETTINGS)),
    # Arguments that take objects too, and are joined with those of other faces.
    "app": (in_app, [name for name in OF_WORKER if name not in ("plugins", "forbidden_flags")]),
    "Django": (in_django, [name for name in OF_WORKER if name != "connection_string"]),  # a key of its own
    "pydantic": (in_pydantic, OF_WORKER),
    "flag": (
        on_command_line,
        [name for name, setting in SETTINGS.items() if setting.owner is ProcessOptions or name in WITH_FLAG],
    ),
}


@pytest.mark.parametrize(
    ("face", "name"), [(face, name) for face, (_, names) in FACES.items() for name in names]
)
def test_an_option_is_known_on_a_face(
    face: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    setting = SETTINGS[name]
    settings = FACES[face][0](setting, tmp_path)
    assert found_in(setting, settings) == sample(setting) != setting.default
    shown = _value(settings, name)
    assert shown == sample(setting) or setting.is_secret


def test_the_options_with_a_flag_are_these() -> None:
    flags = {parameter.name for parameter in graphile_worker.params}
    assert {name for name in OF_WORKER if name in flags} == WITH_FLAG


@pytest.mark.parametrize("name", SETTINGS)
def test_type_checkers_know_an_option(name: str) -> None:
    setting = SETTINGS[name]
    typed = OptionsWithPlugins if setting.owner is WorkerOptions else ProcessOptionValues
    assert setting.path[0] in get_type_hints(typed) or name == "app"
    if setting.path[0] in GROUPS:
        assert setting.path[1] in typed_arguments(GROUPS[setting.path[0]])


def typed_arguments(cls: type) -> list[str]:
    """The arguments of a constructor that only type checkers see."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    for node in ast.walk(body):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return [argument.arg for argument in node.args.kwonlyargs]
    return []


def test_an_object_replaces_its_group_and_a_flat_name_one_option(tmp_path: Path) -> None:
    (tmp_path / "graphile_worker.toml").write_text(
        "recovery_grace = 30\nrecovery_delay = 5\ncomplete_job_batch_delay = 1\n"
    )
    given: dict[str, Any] = {"recovery": RecoveryOptions(delay=1), "node": NodeOptions()}
    settings = resolve_settings(given, {}, tmp_path)
    assert settings.worker.recovery == RecoveryOptions(delay=1)
    assert settings.worker.node == NodeOptions()
    assert settings.provenance["recovery_grace"] == "call"
    settings = resolve_settings({"recovery": False, "history": "all"}, {}, tmp_path)
    assert settings.worker.recovery == RecoveryOptions(enabled=False, grace=30, delay=5)
    assert settings.worker.history == HistoryOptions(mode="all")
    assert settings.provenance["recovery_grace"].endswith("graphile_worker.toml")
    preset = WorkerOptions(recovery=RecoveryOptions(grace=30))
    assert preset.with_values(recovery=False).recovery == RecoveryOptions(enabled=False, grace=30)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"recovery": RecoveryOptions(), "recovery_grace": 30}, "both recovery and recovery_grace are set"),
        ({"recovery": "often"}, "recovery: expected True, False or RecoveryOptions, got 'often'"),
        ({"history": 3}, "history: expected one of none, failed, all; got 3"),
        ({"node": {"complete_job_batch_delay": 1}}, "node: expected NodeOptions, got"),
        ({"recovery_grac": 30}, "unknown option 'recovery_grac'; did you mean 'recovery_grace'"),
    ],
)
@pytest.mark.parametrize("preset", [None, WorkerOptions()])
def test_a_mistake_in_a_group_is_explained(
    given: dict[str, Any],
    message: str,
    preset: WorkerOptions | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        combine(preset, given)


def test_an_allowlist_may_be_empty_on_every_face(tmp_path: Path) -> None:
    """Then only jobs without flags are taken; without the option there is no rule."""
    assert resolve_settings({}, {}, tmp_path).worker.flag_allowlist is None
    assert resolve_settings({"flag_allowlist": []}, {}, tmp_path).worker.flag_allowlist == []
    variable = {"GRAPHILE_WORKER_FLAG_ALLOWLIST": ","}
    assert resolve_settings({}, variable, tmp_path).worker.flag_allowlist == []
    assert (
        resolve_settings({}, {"GRAPHILE_WORKER_FLAG_ALLOWLIST": ""}, tmp_path).worker.flag_allowlist is None
    )
    (tmp_path / "graphile_worker.toml").write_text("flag_allowlist = []\n")
    assert resolve_settings({}, {}, tmp_path).worker.flag_allowlist == []
    context = graphile_worker.make_context("graphile-worker", ["--allow-flag", ""])
    assert load_settings(context, _options_from(context.params)).worker.flag_allowlist == []
    assert App(flag_allowlist=[]).options["flag_allowlist"] == []


@pytest.mark.parametrize("name", ["forbidden_flags", "accepted_flags", "flag_allowlist"])
def test_flags_are_a_list_of_texts(name: str, tmp_path: Path) -> None:
    wrong: list[Any] = ["slow", [1]]
    for flags in wrong:
        with pytest.raises(ConfigError, match=f"{name}: expected a list of (strings|texts)"):
            resolve_settings({name: flags}, {}, tmp_path)
        with pytest.raises(ConfigError, match=f"{name}: expected a list of strings"):
            App(**{name: flags})
    given: dict[str, Any] = {name: ("a", "b", "a")}
    assert getattr(WorkerOptions(**given), name) == ["a", "b"]
