"""Arguments of library calls: their types, unknown names, options of other calls, and conflicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from graphile_worker import make_worker_utils, run, run_once
from graphile_worker.client import api as client_api
from graphile_worker.client.api import ClientArguments
from graphile_worker.config.settings import SERVE_OPTIONS, ProcessOptions, ProcessOptionValues
from graphile_worker.cron import parse_crontab
from graphile_worker.errors import ConfigError, CrontabError
from graphile_worker.hooks import Events, Hooks
from graphile_worker.runner import build
from graphile_worker.runner.arguments import RunArguments, RunOnceArguments
from graphile_worker.values.concurrency import Lane
from graphile_worker.values.option_groups import Duration, HistoryOptions, LocalQueueOptions, RecoveryOptions
from graphile_worker.values.options import (
    CLIENT_OPTIONS,
    ClientOptionValues,
    OptionsWithPlugins,
    WorkerOptions,
    WorkerOptionValues,
)
from support.cases import looped


async def noop() -> None:
    pass


async def start(call: Callable[..., Any], **arguments: Any) -> None:
    """Get as far as opening the worker; no server listens at this address."""
    await call(connection_string="postgres://127.0.0.1:1/db", task_list=[noop], **arguments)


def test_the_types_for_checkers_name_every_option() -> None:
    assert set(get_type_hints(OptionsWithPlugins)) == set(WorkerOptions.__struct_fields__)
    assert set(get_type_hints(ClientOptionValues)) == set(CLIENT_OPTIONS)


def test_the_types_for_checkers_are_those_of_the_options() -> None:
    fields, values = get_type_hints(WorkerOptions), get_type_hints(OptionsWithPlugins)
    for name, field in fields.items():
        expected = {
            float: Duration | None,
            float | None: Duration | None,
            LocalQueueOptions | None: LocalQueueOptions | Mapping[str, Any] | None,
            HistoryOptions: HistoryOptions | str | None,
            RecoveryOptions: RecoveryOptions | bool | None,
            dict[str, int]: Mapping[str, int] | Sequence[Lane] | None,
            dict[str, Any]: Mapping[str, Any] | None,
            list[str]: Sequence[str] | None,
            list[str] | None: Sequence[str] | None,
        }.get(field, field | None)
        assert values[name] == expected, name


@pytest.mark.parametrize(
    ("arguments", "options", "objects"),
    [
        (RunArguments, WorkerOptionValues, build.OBJECTS),
        (RunOnceArguments, WorkerOptionValues, build.OBJECTS),
        (ClientArguments, ClientOptionValues, client_api.OBJECTS),
    ],
)
def test_the_types_for_checkers_name_every_argument(arguments: Any, options: Any, objects: Any) -> None:
    assert set(get_type_hints(arguments)) - set(get_type_hints(options)) == set(objects)


@looped("call", [run, run_once, make_worker_utils])
@looped("options", [None, WorkerOptions()])
@looped(
    ("name", "meant"),
    [("pgpool", "pg_pool"), ("max_pool_siz", "max_pool_size"), ("connection", "connection_string")],
)
async def test_a_misspelt_argument_is_refused_with_the_right_name(
    call: Callable[..., Any], options: WorkerOptions | None, name: str, meant: str
) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{name}'; did you mean '{meant}'"):
        await call(options=options, **{name: "x"})


@looped("name", ["concurrency", "task_list", "grace", "forbidden_flags"])
def test_arguments_of_a_worker_are_refused_by_a_client(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: this is not an option of this call; run and run_once"):
        make_worker_utils(**{name: 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("call", [run, run_once, make_worker_utils])
async def test_events_and_hooks_together_are_refused(call: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="both events and hooks are set"):
        await call(connection_string="postgres:///unused", events=Events(), hooks=Hooks())


@looped("call", [run, run_once])
@looped("options", [None, WorkerOptions()])
@looped(
    ("name", "value", "who"),
    [
        ("processes", 4, "serve takes it, and the command `graphile-worker` as --processes"),
        (
            "log_format",
            "json",
            "serve takes it, and the command `graphile-worker`; otherwise a program sets up logging itself",
        ),
        ("log_level", "debug", "serve takes it"),
        ("http_address", "::1", "--http-address"),
        ("once", True, "call run_once"),
        ("max_attempts", 3, "add_job"),
    ],
)
async def test_options_of_others_are_refused_with_the_name_of_who_takes_them(
    call: Callable[..., Any], options: WorkerOptions | None, name: str, value: object, who: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: this is not an option of this call; .*{who}"):
        await start(call, options=options, **{name: value})


def test_every_option_of_the_command_alone_is_refused_by_calls() -> None:
    call: Callable[..., Any] = run
    for name in set(ProcessOptions.__struct_fields__) - {"app"}:
        with pytest.raises(ConfigError, match="not an option of this call"):
            call(**{name: "x"})
    client: Callable[..., Any] = make_worker_utils
    with pytest.raises(ConfigError, match="app: this is not an option of this call; run and run_once"):
        client(app="shop.worker:app")


def test_the_options_of_a_process_are_typed() -> None:
    assert tuple(get_type_hints(ProcessOptionValues)) == SERVE_OPTIONS


def test_the_file_and_the_environment_may_set_options_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graphile_worker.toml").write_text("processes = 4\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHILE_WORKER_LOG_FORMAT", "json")
    run(task_list=[noop], connection_string="postgres:///unused")


@pytest.mark.parametrize("call", [run, run_once])
async def test_a_crontab_is_given_in_one_way(call: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "crontab"
    path.write_text("* * * * * noop\n")
    with pytest.raises(ConfigError, match="both crontab and crontab_file are set"):
        await start(call, crontab="* * * * * noop", crontab_file=str(path))
    with pytest.raises(ConfigError, match="both parsed_cron_items and crontab_file are set"):
        await start(call, parsed_cron_items=parse_crontab("* * * * * noop"), crontab_file=str(path))


@pytest.mark.parametrize("call", [run, run_once])
@pytest.mark.parametrize("options", [None, WorkerOptions()])
async def test_a_crontab_that_is_named_must_exist(
    call: Callable[..., Any], options: WorkerOptions | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("crontab", "other"):  # the first is the name of the default
        with pytest.raises(CrontabError, match=f"{name}: the crontab does not exist"):
            await start(call, options=options, crontab_file=name)
    monkeypatch.setenv("GRAPHILE_WORKER_CRONTAB_FILE", "crontab")
    if options is None:
        with pytest.raises(CrontabError, match=f"{tmp_path}/crontab: the crontab does not exist"):
            await start(call)


async def test_items_that_share_an_identifier_stop_the_start(tmp_path: Path) -> None:
    items = [*parse_crontab("* * * * * noop", source="one"), *parse_crontab("0 * * * * noop", source="two")]
    with pytest.raises(CrontabError, match=r"two:1: the identifier 'noop' is already used in one:1"):
        await start(run_once, parsed_cron_items=items)
