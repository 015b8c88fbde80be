"""The sources of options, their precedence, and the errors about mistakes."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from graphile_worker.config import Host, resolve, resolve_settings
from graphile_worker.config.settings import ProcessOptions, known_settings
from graphile_worker.config.sources import from_settings
from graphile_worker.errors import ConfigError
from graphile_worker.values.option_groups import LocalQueueOptions, NodeOptions
from graphile_worker.values.options import WorkerOptions
from support.cases import looped


def write(folder: Path, text: str, name: str = "graphile_worker.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_without_any_source_everything_is_at_its_default(tmp_path: Path) -> None:
    options, provenance = resolve({}, {}, tmp_path)
    assert options == WorkerOptions()
    assert set(provenance.values()) == {"default"}
    expected = {name for name, setting in known_settings().items() if setting.owner is WorkerOptions}
    assert set(provenance) == {name for name in expected if not name.startswith("local_queue.")}


def test_each_source_wins_over_the_one_before_it(tmp_path: Path) -> None:
    write(tmp_path, "concurrency = 2\npoll_interval = 3\nmax_pool_size = 4\ngrace = 1.5\n")
    environ = {"GRAPHILE_WORKER_POLL_INTERVAL": "5.5", "GRAPHILE_WORKER_MAX_POOL_SIZE": "6"}
    options, provenance = resolve({"max_pool_size": 7, "schema": None}, environ, tmp_path)
    assert (options.concurrency, options.poll_interval, options.max_pool_size) == (2, 5.5, 7)
    assert options.grace == 1.5
    path = str(tmp_path / "graphile_worker.toml")
    assert provenance["concurrency"] == path
    assert provenance["poll_interval"] == "environment variable GRAPHILE_WORKER_POLL_INTERVAL"
    assert provenance["max_pool_size"] == "call"
    assert provenance["schema"] == "default"


def test_a_project_file_holds_the_options_in_its_table(tmp_path: Path) -> None:
    write(tmp_path, '[project]\nname = "x"\n[tool.graphile-worker]\nschema = "jobs"\n', "pyproject.toml")
    options, provenance = resolve({}, {}, tmp_path)
    assert options.schema == "jobs"
    assert provenance["schema"].endswith("pyproject.toml")


@looped(
    "text",
    [
        '[tool.graphile-worker]\nschema = "jobs"',
        '  [ tool . graphile-worker ]\nschema = "jobs"',
        '["tool".\'graphile-worker\']\nschema = "jobs"',
        'tool.graphile-worker.schema = "jobs"',
        'tool = {graphile-worker = {schema = "jobs"}}',
        '[tool]\ngraphile-worker.schema = "jobs"',
        '[project]\r\nname = "x"\r\n[tool.graphile-worker]\r\nschema = "jobs"',
    ],
)
def test_the_table_is_found_however_it_is_written(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text.encode())
    assert resolve({}, {}, tmp_path)[0].schema == "jobs"


def test_a_project_file_that_begins_with_a_byte_order_mark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("\ufeff[tool.graphile-worker]\nconcurrency = 3\n", "utf-8")
    with pytest.raises(ConfigError, match=r"pyproject\.toml: not valid TOML"):
        resolve({}, {}, tmp_path)


@looped(
    "text",
    [
        '[tool.other]\nschema = "jobs"',
        '[project]\ndependencies = ["graphile-worker"]\n[tool.other]\ngraphile-worker = {schema = "jobs"}',
        "[tool.other]\nnot TOML, and not ours",
    ],
)
def test_a_project_file_without_our_table_is_no_configuration(text: str, tmp_path: Path) -> None:
    write(tmp_path, text, "pyproject.toml")
    assert resolve({}, {}, tmp_path)[0] == WorkerOptions()


def test_two_configuration_files_in_one_folder_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "concurrency = 2\n")
    write(tmp_path, "[tool.graphile-worker]\nconcurrency = 3\n", "pyproject.toml")
    with pytest.raises(ConfigError, match=r"both graphile_worker\.toml and .* keep one"):
        resolve({}, {}, tmp_path)
    assert resolve({}, {}, tmp_path, "pyproject.toml")[0].concurrency == 3


def test_a_file_can_be_named_and_its_paths_are_relative_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    write(folder, 'task-directory = "jobs"\ncrontab_file = "/srv/crontab"\n', "worker.toml")
    options, provenance = resolve({}, {}, tmp_path, "etc/worker.toml")
    assert options.task_directory == str(folder / "jobs")
    assert options.crontab_file == "/srv/crontab"
    assert provenance["task_directory"] == str(folder / "worker.toml")


@pytest.mark.parametrize("text", ["my_app.jobs:tasks", "my_app.jobs", "jobs:tasks"])
def test_tasks_of_a_module_are_not_taken_for_a_path(tmp_path: Path, text: str) -> None:
    write(tmp_path, f'task_directory = "{text}"\n')
    assert resolve({}, {}, tmp_path)[0].task_directory == text


@looped("text", ["jobs", "jobs.py", "jobs.py:tasks", "../jobs"])
def test_tasks_in_files_are_relative_to_the_configuration(tmp_path: Path, text: str) -> None:
    write(tmp_path, f'task_directory = "{text}"\n')
    assert resolve({}, {}, tmp_path)[0].task_directory == str(tmp_path / text)


@looped(
    ("text", "message"),
    [
        (
            "concurency = 2\n",
            r"graphile_worker\.toml: unknown option 'concurency'; did you mean 'concurrency'\?",
        ),
        ("jobs = 2\n", "unknown option 'jobs'; did you mean 'concurrency'"),
        ("zzz = 2\n", "unknown option 'zzz'; known options: connection_string, schema"),
        ("[local-queue]\nsiz = 2\n", r"unknown option 'local_queue\.siz'; did you mean 'local_queue\.size'"),
        ("concurrency = '2'\n", r"graphile_worker\.toml: concurrency: expected a whole number, got '2'"),
        ("concurrency = true\n", "concurrency: expected a whole number, got True"),
        ("handle_signals = 1\n", "handle_signals: expected true or false, got 1"),
        ("schema = 1\n", "schema: expected text, got 1"),
        ("grace = 'long'\n", "grace: expected a number of seconds, got 'long'"),
        ("concurrency = 0\n", r"graphile_worker\.toml: concurrency: must be at least 1, got 0"),
        ("concurrency = 9999999999\n", "concurrency: must be at most 1000000, got 9999999999"),
        ("grace = -1\n", r"graphile_worker\.toml: grace: must be a finite number"),
        ("log_format = 'xml'\n", r"graphile_worker\.toml: log_format: expected text or json, got 'xml'"),
        ("processes = 0\n", "processes: expected a number from 1 to"),
        ("concurrency = \n", r"graphile_worker\.toml: not valid TOML: .*line 1"),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError, match=message):
        resolve({}, {}, tmp_path)


def test_a_named_file_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: the configuration file does not exist"):
        resolve({}, {}, tmp_path, "nowhere.toml")


def test_a_named_project_file_without_our_table_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "[project]\n", "pyproject.toml")
    with pytest.raises(ConfigError, match=r"no table \[tool\.graphile-worker\]"):
        resolve({}, {}, tmp_path, "pyproject.toml")


def test_the_environment_sets_values_of_every_kind(tmp_path: Path) -> None:
    environ = {
        "DATABASE_URL": "postgres:///one",
        "GRAPHILE_WORKER_SCHEMA": "jobs",
        "GRAPHILE_WORKER_CONCURRENCY": "3",
        "GRAPHILE_WORKER_PREPARED_STATEMENTS": "No",
        "GRAPHILE_WORKER_COMPLETE_JOB_BATCH_DELAY": "0.25",
        "GRAPHILE_WORKER_LOCAL_QUEUE_SIZE": "5",
        "GRAPHILE_WORKER_LOG_LEVEL": "debug",
        "GRAPHILE_WORKER_GRACE": "",
    }
    settings = resolve_settings({}, environ, tmp_path)
    assert settings.worker == WorkerOptions(
        connection_string="postgres:///one",
        schema="jobs",
        concurrency=3,
        prepared_statements=False,
        node=NodeOptions(complete_job_batch_delay=0.25),
        local_queue=LocalQueueOptions(size=5),
    )
    assert settings.process == ProcessOptions(log_level="debug")
    assert settings.provenance["connection_string"] == "environment variable DATABASE_URL"
    assert settings.provenance["grace"] == "default"


def test_our_own_variable_for_the_connection_wins_over_the_general_one(tmp_path: Path) -> None:
    environ = {"GRAPHILE_WORKER_CONNECTION_STRING": "postgres:///own", "DATABASE_URL": "postgres:///general"}
    assert resolve({}, environ, tmp_path)[0].connection_string == "postgres:///own"


@looped(
    ("variable", "text", "message"),
    [
        (
            "GRAPHILE_WORKER_CONCURRENCY",
            "many",
            "GRAPHILE_WORKER_CONCURRENCY: expected a whole number, got 'many'",
        ),
        ("GRAPHILE_WORKER_CONCURRENCY", "0", "GRAPHILE_WORKER_CONCURRENCY: concurrency: must be at least 1"),
        ("GRAPHILE_WORKER_HANDLE_SIGNALS", "perhaps", "expected true or false, got 'perhaps'"),
        ("GRAPHILE_WORKER_POLL_INTERVL", "1", "did you mean GRAPHILE_WORKER_POLL_INTERVAL"),
        ("GRAPHILE_WORKER_JOBS", "1", "did you mean GRAPHILE_WORKER_CONCURRENCY"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    tmp_path: Path, variable: str, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve({}, {variable: text}, tmp_path)


def test_variables_that_a_container_platform_makes_of_the_same_prefix_are_left_alone(tmp_path: Path) -> None:
    environ = {
        "GRAPHILE_WORKER_SERVICE_HOST": "10.0.0.1",
        "GRAPHILE_WORKER_PORT": "tcp://10.0.0.1:80",
        "GRAPHILE_WORKER_PORT_80_TCP_ADDR": "10.0.0.1",
        "GRAPHILE_WORKER_DEBUG": "1",
    }
    assert resolve({}, environ, tmp_path)[0] == WorkerOptions()


def test_a_group_of_options_is_put_together_from_several_sources(tmp_path: Path) -> None:
    write(tmp_path, "[local_queue]\nsize = 10\nttl = 60\n[local_queue.refetch_delay]\nduration = 0.1\n")
    environ = {"GRAPHILE_WORKER_LOCAL_QUEUE_TTL": "30"}
    options, provenance = resolve({"local_queue": {"size": 20}}, environ, tmp_path)
    assert options.local_queue is not None
    assert (options.local_queue.size, options.local_queue.ttl) == (20, 30.0)
    assert options.local_queue.refetch_delay is not None
    assert options.local_queue.refetch_delay.duration == 0.1
    assert provenance["local_queue.size"] == "call"
    assert provenance["local_queue.ttl"].endswith("GRAPHILE_WORKER_LOCAL_QUEUE_TTL")
    assert provenance["local_queue.refetch_delay.duration"].endswith("graphile_worker.toml")
    assert provenance["local_queue.refetch_delay.threshold"] == "default"


def test_a_whole_object_replaces_what_other_sources_said_about_the_group(tmp_path: Path) -> None:
    write(tmp_path, "[local_queue]\nsize = 10\nttl = 60\n")
    options, provenance = resolve({"local_queue": LocalQueueOptions(size=3)}, {}, tmp_path)
    assert options.local_queue == LocalQueueOptions(size=3)
    assert provenance["local_queue.ttl"] == "call"


def test_a_call_may_give_durations_as_timedelta_and_is_checked_for_unknown_names(tmp_path: Path) -> None:
    assert resolve({"poll_interval": timedelta(seconds=1.5)}, {}, tmp_path)[0].poll_interval == 1.5
    with pytest.raises(ConfigError, match="unknown option 'pollInterval'; did you mean 'poll_interval'"):
        resolve({"pollInterval": 2}, {}, tmp_path)


def test_the_options_of_the_command_line_are_no_business_of_a_library_call(tmp_path: Path) -> None:
    write(tmp_path, "log_format = 'json'\nconcurrency = 2\n")
    options, provenance = resolve({}, {}, tmp_path)
    assert options.concurrency == 2
    assert "log_format" not in provenance


def test_every_option_has_a_variable_of_its_own() -> None:
    variables = [setting.variable for setting in known_settings().values()]
    assert len(set(variables)) == len(variables)
    assert "GRAPHILE_WORKER_LOCAL_QUEUE_REFETCH_DELAY_MAX_ABORT_THRESHOLD" in variables


def test_settings_of_a_host_take_the_place_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, "concurrency = 2\ngrace = 2\n")
    given = {"concurrency": 3, "grace": timedelta(seconds=3), "history": "all", "processes": 3, "hold": None}
    host = Host(from_settings({**given, "schema": "of_host", "local_queue": {"size": 3}}, "settings"))
    environ = {
        "DATABASE_URL": "postgres:///elsewhere",
        "GRAPHILE_WORKER_SCHEMA": "elsewhere",
        "GRAPHILE_WORKER_APP": "elsewhere:app",
        "GRAPHILE_WORKER_GRACE": "4",
    }
    found = resolve_settings({"schema": None}, environ, tmp_path, host=host)
    assert (found.worker.concurrency, found.worker.grace, found.worker.schema) == (3, 4.0, "of_host")
    assert (found.worker.connection_string, found.process.app, found.process.processes) == (None, None, 3)
    assert found.places["concurrency"] == "settings"
    assert found.places["grace"] == "environment variable GRAPHILE_WORKER_GRACE"
    assert found.provenance["hold"] == "default"
    assert found.places["local_queue.size"] == "settings"
    named = resolve_settings({"history": "none"}, {}, tmp_path, "graphile_worker.toml", host=host)
    assert (named.worker.concurrency, named.worker.history.mode) == (2, "none")
    with_flags = Host(host.settings, {"concurrency": 5, "grace": 5})
    assert resolve_settings({"grace": 6}, environ, tmp_path, host=with_flags).worker.concurrency == 5
    assert resolve_settings({"grace": 6}, environ, tmp_path, host=with_flags).worker.grace == 6


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"concurency": 3}, "settings: unknown option 'concurency'; did you mean 'concurrency'?"),
        ({"processes": "2"}, "settings: processes: expected a whole number, got '2'"),
        ({"concurrency": 0}, "settings: concurrency: must be at least 1, got 0"),
    ],
)
def test_a_mistake_in_settings_of_a_host_is_reported_with_its_place(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve_settings({}, {}, tmp_path, host=Host(from_settings(values, "settings")))
