"""What a person and a machine read in the log of a worker with an application's own lines."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.running import running_in
from support.command_line import Call, clean_environment

TALK = """
import logging, sys, warnings

logger = logging.getLogger("shop.orders")

async def talk(payload, helpers):
    helpers.logger.info("hello %s", "Ada")
    logger.info("from the application")
    logger.debug("not shown")
    print("printed")
    print("careful", file=sys.stderr)
    warnings.warn("the old way")
    print("no newline", end="")
"""
THREADED = """
import logging

def threaded(payload):
    print("in a thread")
    logging.getLogger("shop.orders").warning("100%% sure in %s", "a thread")
"""
LEVELS = "expected error or warning or info or debug"
PAIRS = "expected names and values, such as httpx=warning"
SCRIPT = "#!/bin/sh\necho from a script\n"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} "


@pytest.fixture
def shop(place: Path) -> Path:
    """A folder with tasks that log, print and warn."""
    tasks = place / "tasks"
    tasks.mkdir()
    (tasks / "talk.py").write_text(TALK)
    (tasks / "threaded.py").write_text(THREADED)
    (tasks / "script").write_text(SCRIPT)
    (tasks / "script").chmod(0o755)
    return place


@pytest.fixture
def added(gw: Call, shop: Path) -> Path:
    for task in ("talk", "threaded", "script"):
        gw("add", task, "--max-attempts", 1).check()
    return shop


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.usefixtures("added")
def test_lines_of_the_application_look_like_ours_in_text(spawn: Call, database_url: str) -> None:
    result = spawn("--once", DATABASE_URL=database_url, PYTHONWARNINGS="always").check()
    out, err = (re.sub(TIME, "", text, flags=re.M).splitlines() for text in (result.out, result.err))
    assert "INFO [job] task talk (job 1): hello Ada" in out
    assert "INFO [shop.orders] task talk (job 1): from the application" in out
    assert "printed" in out
    assert "careful" in err
    (warning,) = [line for line in err if "the old way" in line]
    assert warning.startswith("WARNING [py.warnings] task talk (job 1): ")
    assert warning.endswith("tasks/talk.py:12: UserWarning: the old way")
    assert "WARNING [shop.orders] task threaded (job 2): 100% sure in a thread" in err
    assert "INFO [job] task script (job 3): from a script" in out
    assert "not shown" not in result.out
    assert len(re.findall(TIME + r"INFO \[worker\] task \w+ \(job \d\) completed in ", result.out)) == 3


@pytest.mark.usefixtures("added")
def test_in_json_mode_every_line_is_json_and_names_its_job(spawn: Call, database_url: str) -> None:
    result = spawn("--once", "--log-format", "json", DATABASE_URL=database_url, PYTHONWARNINGS="always")
    lines = json_lines(result.check().out) + json_lines(result.err)
    found = {(line["logger"], line["msg"]): line for line in lines}
    (stopped,) = [line for line in lines if line["msg"].startswith("stopped")]
    for key, job_id in {
        ("graphile_worker.job", "hello Ada"): 1,
        ("shop.orders", "from the application"): 1,
        ("stdout", "printed"): 1,
        ("stdout", "no newline"): 1,
        ("stderr", "careful"): 1,
        ("stdout", "in a thread"): 2,
        ("shop.orders", "100% sure in a thread"): 2,
        ("graphile_worker.job", "from a script"): 3,
    }.items():
        assert (found[key]["job_id"], found[key]["attempt"]) == (job_id, 1)
        assert found[key]["pool_id"] == stopped["pool_id"]
        assert found[key]["pid"] == stopped["pid"]
    (warning,) = [line for line in lines if line["logger"] == "py.warnings"]
    assert warning["msg"].endswith("tasks/talk.py:12: UserWarning: the old way")
    assert (warning["task"], warning["job_id"]) == ("talk", 1)
    texts = [line["msg"] for line in lines if line.get("job_id") == 1]
    assert texts.index("no newline") < next(n for n, text in enumerate(texts) if "completed in" in text)


@pytest.mark.usefixtures("shop")
def test_an_error_at_start_is_json_in_json_mode(spawn: Call, place: Path, database_url: str) -> None:
    (place / "tasks" / "broken.py").write_text("def broken(payload:\n")
    result = spawn("--once", "--log-format", "json", DATABASE_URL=database_url)
    (line,) = [line for line in json_lines(result.err) if line["level"] == "error"]
    assert result.status == 1
    assert (line["event"], line["error"]) == ("error", line["msg"])
    assert "broken.py" in line["msg"]


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_a_mistake_in_the_options_is_json_in_json_mode(spawn: Call, place: Path, how: str) -> None:
    (place / "graphile_worker.toml").write_text("concurency = 2\n")
    if how == "flag":
        result = spawn("--once", "--log-format", "json")
    else:
        result = spawn("--once", GRAPHILE_WORKER_LOG_FORMAT="json")
    (line,) = json_lines(result.err)
    assert (result.status, line["level"], line["error_type"]) == (1, "error", "ConfigError")
    assert "did you mean 'concurrency'?" in line["msg"]


def test_commands_that_print_results_do_so_in_json_mode_too(gw: Call) -> None:
    assert gw("--log-format", "json", "list").check().out == "No jobs.\n"


# -- levels ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("added")
def test_single_loggers_have_levels_of_their_own(spawn: Call, database_url: str) -> None:
    levels = ("warning", "shop=debug", "graphile_worker.job=error")
    flags = [part for level in levels for part in ("--log-level", level)]
    result = spawn("--once", *flags, DATABASE_URL=database_url).check()
    assert "[shop.orders] task talk (job 1): not shown" in result.out
    assert "[shop.orders] task talk (job 1): from the application" in result.out
    assert "hello Ada" not in result.out
    assert "completed in" not in result.out


def test_levels_of_all_sources_are_merged_and_shown(
    call: Call, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place / "graphile_worker.toml"
    file.write_text('[log_levels]\n"b.c" = "warning"\nd.e = "info"\nshop = "debug"\n')
    monkeypatch.setenv("GRAPHILE_WORKER_LOG_LEVELS", "d.e=error, a=info")
    found = call("--log-level", "a=debug", "--log-level", "debug", "config", "--json").check().json
    assert found["log_level"] == {"value": "debug", "source": "command line"}
    assert found["log_levels"] == {
        "value": {"b.c": "warning", "d.e": "error", "shop": "debug", "a": "debug"},
        "source": f"{file}, environment variable GRAPHILE_WORKER_LOG_LEVELS, command line",
    }
    shown = " ".join(call("config").check().out.split())
    assert "log_levels b.c=warning, d.e=error, shop=debug, a=info" in shown
    file.unlink()
    monkeypatch.delenv("GRAPHILE_WORKER_LOG_LEVELS")
    assert "log_levels (not set) default" in " ".join(call("config").check().out.split())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("warn", "'warn' is not a level; did you mean 'warning'? (levels: error, warning, info, debug)"),
        ("httpx=loud", "'loud' is not a level (levels: error, warning, info, debug)"),
        ("=info", "'=info' names no logger; write for example httpx=warning"),
    ],
)
def test_a_wrong_level_on_the_command_line_gets_a_sentence(call: Call, value: str, message: str) -> None:
    result = call("--once", "--log-level", value)
    assert result.status == 2
    assert message in result.err


@pytest.mark.parametrize(
    ("file", "variable", "message"),
    [
        ("[log_levels]\nhttpx = 'warn'\n", "", f"log_levels: httpx: {LEVELS}, got 'warn'"),
        ("[log_levels]\nhttpx = 3\n", "", f"log_levels: httpx: {LEVELS}, got 3"),
        ("log_levels = 'info'\n", "", f"log_levels: {PAIRS}, got 'info'"),
        ("", "httpx", f"GRAPHILE_WORKER_LOG_LEVELS: {PAIRS}, got 'httpx'"),
        ("", "httpx=3", f"log_levels: httpx: {LEVELS}, got '3'"),
    ],
)
def test_a_wrong_level_elsewhere_is_reported_with_its_place(
    call: Call, place: Path, monkeypatch: pytest.MonkeyPatch, file: str, variable: str, message: str
) -> None:
    (place / "graphile_worker.toml").write_text(file)
    monkeypatch.setenv("GRAPHILE_WORKER_LOG_LEVELS", variable)
    result = call("config")
    assert result.status == 1
    assert message in result.err
    assert (
        "graphile_worker.toml: " if file else "environment variable GRAPHILE_WORKER_LOG_LEVELS: "
    ) in result.err


# -- several processes -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("shop")
def test_with_several_processes_each_json_line_has_the_process_and_its_pool(
    gw: Call, place: Path, database_url: str
) -> None:
    with running_in(place) as run:
        worker = run("--processes", 2, "--log-format", "json", DATABASE_URL=database_url)
        worker.wait_for('"event":"ready"', times=2)
        for _ in range(6):
            gw("add", "talk", "--max-attempts", 1).check()
        worker.wait_for('"event":"job:success"', times=6)
        pools = {row["id"]: row["pid"] for row in gw("workers", "--json").json}
        output = worker.output
    lines = json_lines(output)
    assert all(isinstance(line["pid"], int) for line in lines)
    of_a_pool = [line for line in lines if "pool_id" in line]
    assert {line["pool_id"]: line["pid"] for line in of_a_pool} == pools
    assert len(pools) == 2
    for line in lines:
        assert "pool_id" in line or "job_id" not in line
    assert {line["pid"] for line in of_a_pool} == set(pools.values())


# -- programs ----------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, logging, sys
from graphile_worker import JobHelpers, make_worker_utils, run_once, task

CONFIGURE

@task
async def send_email(payload: None, helpers: JobHelpers) -> None:
    helpers.logger.info("100% sent")
    helpers.logger.info("to %(name)s", {"name": "Ada"})
    helpers.logger.info(ValueError("an object"))
    logging.getLogger("shop").info("own line")

@task
async def fails() -> None:
    raise KeyError("sku")

async def main():
    async with make_worker_utils() as utils:
        await utils.add_job(send_email, None, max_attempts=1)
        await utils.add_job("fails", max_attempts=1)
    await run_once(task_list=[send_email, fails])

asyncio.run(main())
"""


def run_program(configure: str, database_url: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("CONFIGURE", configure)],
        env=clean_environment(DATABASE_URL=database_url),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return (done.stdout + done.stderr).splitlines()


def test_with_any_formatter_a_line_names_its_job(database_url: str) -> None:
    lines = run_program(
        'logging.basicConfig(level="INFO", format="%(levelname)s %(name)s %(message)s")', database_url
    )
    assert "INFO graphile_worker.job task send_email (job 1): 100% sent" in lines
    assert "INFO graphile_worker.job task send_email (job 1): to Ada" in lines
    assert "INFO graphile_worker.job task send_email (job 1): an object" in lines
    assert "INFO shop own line" in lines
    assert any(
        line.startswith("INFO graphile_worker.worker task send_email (job 1) completed in ") for line in lines
    )
    assert any(
        line.startswith("ERROR graphile_worker.worker task fails (job 2) permanently failed after ")
        for line in lines
    )


DICT_CONFIG = """
import logging.config
logging.config.dictConfig({
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"worker": {"()": "graphile_worker.logging.FORMATTER"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "worker"}},
    "root": {"level": "INFO", "handlers": ["console"]},
})
"""


def test_the_formatters_can_be_used_in_a_configuration_of_logging(database_url: str) -> None:
    text = run_program(DICT_CONFIG.replace("FORMATTER", "TextFormatter"), database_url)
    assert any(
        re.fullmatch(TIME + r"INFO \[shop\] task send_email \(job 1\): own line", line) for line in text
    )
    lines = json_lines(
        "\n".join(run_program(DICT_CONFIG.replace("FORMATTER", "JsonFormatter"), database_url))
    )
    (own,) = [line for line in lines if line["msg"] == "own line"]
    assert (own["task"], own["job_id"]) == ("send_email", 3)
    (stopped,) = [line for line in lines if line["msg"].startswith("stopped")]
    assert stopped["pool_id"] == own["pool_id"]


FILTERED = """
from graphile_worker.logging import JobContextFilter
handler = logging.StreamHandler()
handler.addFilter(JobContextFilter())
handler.setFormatter(logging.Formatter("%(name)s %(job_id)s %(message)s", defaults={"job_id": "-"}))
logging.basicConfig(level="INFO", handlers=[handler])
"""


def test_the_filter_gives_other_formatters_the_job_of_a_record(database_url: str) -> None:
    lines = run_program(FILTERED, database_url)
    assert "shop 1 own line" in lines
    assert "graphile_worker - stopped; all outcomes are written" in lines


# -- a reader that goes away -------------------------------------------------------------------------------


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_worker_whose_reader_went_away_while_tasks_print_stops_in_an_orderly_way(
    gw: Call, place: Path, database_url: str, log_format: str
) -> None:
    with running_in(place) as run:
        worker = run("--log-format", log_format, DATABASE_URL=database_url).wait_for("listening for new jobs")
        worker.close_output()
        gw("add", "talk", "--max-attempts", 2).check()
        worker.ended()
        assert worker.was_killed_by() is signal.SIGPIPE
    assert gw("list", "--json", "--state", "running").json == []
