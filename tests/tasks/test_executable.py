"""Executable files as tasks, with real scripts."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import GiveUp, RetryIn, Snooze, run_once
from graphile_worker.errors import ExecutableFailedError, JobInterruptedError
from graphile_worker.tasks import AbortSignal, load_tasks
from graphile_worker.tasks.executables.child_process import MAX_LINE, ChildProcess, OutputLines
from graphile_worker.tasks.executables.executable import describe_status, job_environment, run_executable
from support.working import PATIENCE, Jobs


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Any:
    """The logged lines as (level, text)."""
    caplog.set_level(logging.DEBUG, "graphile_worker.job")
    return lambda: [
        (record.levelname, record.getMessage().removeprefix("task hello (job 7): "))
        for record in caplog.records
        if record.name == "graphile_worker.job"
    ]


# -- the protocol ------------------------------------------------------------------------------------------


async def test_the_job_comes_by_environment_and_the_payload_by_standard_input(
    folder: Any, make_job: Any, make_helpers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_THE_WORKER", "inherited")
    monkeypatch.setenv("GRAPHILE_WORKER_JOB_KEY", "of another job")
    folder.write(
        "users/notify",
        f"""
        #!{sys.executable}
        import json, os, sys
        seen = {{"argv": sys.argv, "stdin": sys.stdin.read(), "cwd": os.getcwd(), "env": dict(os.environ)}}
        json.dump(seen, open("seen.json", "w"))
        """,
        executable=True,
    )
    made = load_tasks("tasks")["users/notify"]
    job = make_job(
        id=12,
        task_identifier="users/notify",
        raw_payload='{"a": [1, 2.50, "ü"]}',
        priority=-3,
        attempts=2,
        max_attempts=5,
    )
    await made._invoke(made._decode(job.raw_payload), make_helpers(job))
    seen = json.loads((folder.project / "seen.json").read_text())
    assert seen["argv"] == [str(folder.path / "users/notify")]
    assert seen["cwd"] == str(folder.project)
    assert seen["stdin"] == '{"payload":{"a": [1, 2.50, "ü"]}}'
    assert seen["env"]["FROM_THE_WORKER"] == "inherited"
    assert {name: value for name, value in seen["env"].items() if name.startswith("GRAPHILE_WORKER_")} == {
        "GRAPHILE_WORKER_PAYLOAD_FORMAT": "json",
        "GRAPHILE_WORKER_TASK_IDENTIFIER": "users/notify",
        "GRAPHILE_WORKER_JOB_ID": "12",
        "GRAPHILE_WORKER_JOB_ATTEMPTS": "2",
        "GRAPHILE_WORKER_JOB_MAX_ATTEMPTS": "5",
        "GRAPHILE_WORKER_JOB_PRIORITY": "-3",
        "GRAPHILE_WORKER_JOB_RUN_AT": "2023-11-14T22:13:20.123Z",
        "GRAPHILE_WORKER_EXIT_RETRY": "117",
        "GRAPHILE_WORKER_EXIT_SNOOZE": "118",
        "GRAPHILE_WORKER_EXIT_GIVE_UP": "119",
    }


@pytest.mark.parametrize("inherit", [True, False])
async def test_executables_may_not_inherit_the_database(
    inherit: bool, folder: Any, database_url: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    about_database = {
        "DATABASE_URL": "postgres://me:secret@127.0.0.1:1/db",
        "GRAPHILE_WORKER_CONNECTION_STRING": "postgres://me:secret@127.0.0.1:1/db",
        "PGPASSWORD": "secret",
        "PGPASSFILE": "/nowhere/pgpass",
        "PGSERVICEFILE": "/nowhere/services",
    }
    for name, value in about_database.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FROM_THE_WORKER", "inherited")
    folder.write("look", "#!/bin/sh\nenv > seen.new && mv seen.new seen\n", executable=True)
    await jobs.add("look")
    await run_once(
        connection_string=database_url,
        task_list=load_tasks("tasks"),
        executables_inherit_database=inherit,
    )
    lines = Path("seen").read_text().splitlines()
    assert "FROM_THE_WORKER=inherited" in lines
    assert "GRAPHILE_WORKER_TASK_IDENTIFIER=look" in lines
    for name, value in about_database.items():
        assert (f"{name}={value}" in lines) == inherit
    assert any("secret" in line for line in lines) == inherit


def test_the_key_is_in_the_environment_if_the_job_has_one(make_job: Any) -> None:
    environment = job_environment(make_job(key="welcome:1", raw_run_at=0.0))
    assert environment["GRAPHILE_WORKER_JOB_KEY"] == "welcome:1"
    assert environment["GRAPHILE_WORKER_JOB_RUN_AT"] == "1970-01-01T00:00:00.000Z"


async def test_output_becomes_log_lines_of_the_job(
    folder: Any, make_helpers: Any, logged: Any, caplog: Any
) -> None:
    script = folder.write(
        "talk.sh", "#!/bin/sh\necho one; printf 'two\\nthree'; echo careful >&2", executable=True
    )
    await run_executable(script, make_helpers())
    lines = logged()
    assert [text for level, text in lines if level == "INFO"] == ["one", "two", "three"]
    assert [text for level, text in lines if level == "ERROR"] == ["careful"]
    record = caplog.records[0]
    assert (record.worker_id, record.task_identifier, record.job_id, record.label) == (
        "worker-1",
        "hello",
        7,
        "job",
    )


async def test_a_script_without_an_interpreter_line_is_run_by_the_shell(
    folder: Any, make_helpers: Any, logged: Any
) -> None:
    script = folder.write("plain", "echo from sh", executable=True)
    await run_executable(script, make_helpers())
    assert logged() == [("INFO", "from sh")]


# -- failing -----------------------------------------------------------------------------------------------


async def test_an_exit_status_is_in_the_message_with_the_last_error_line(
    folder: Any, make_helpers: Any
) -> None:
    script = folder.write(
        "fail.sh", "#!/bin/sh\necho first >&2; echo no such user >&2; exit 3", executable=True
    )
    with pytest.raises(ExecutableFailedError) as caught:
        await run_executable(script, make_helpers())
    assert str(caught.value) == f"{script} exited with status 3: no such user"


async def test_the_signal_that_ended_it_is_in_the_message(folder: Any, make_helpers: Any) -> None:
    script = folder.write("die.sh", "#!/bin/sh\nkill -KILL $$", executable=True)
    with pytest.raises(ExecutableFailedError) as caught:
        await run_executable(script, make_helpers())
    assert str(caught.value) == f"{script} was ended by SIGKILL"


def test_a_signal_without_a_name_is_shown_by_number() -> None:
    assert describe_status(-1000) == "was ended by signal 1000"


async def test_a_file_that_cannot_be_started_is_a_failure_of_the_job(folder: Any, make_helpers: Any) -> None:
    lost = folder.write("lost", "#!/no/such/interpreter\n", executable=True)
    asks = (
        "lost cannot be started: its first line asks for /no/such/interpreter, which is not on this machine"
    )
    with pytest.raises(ExecutableFailedError, match=asks):
        await run_executable(lost, make_helpers())
    lost.write_bytes(b"#!/bin/sh\r\necho hello\r\n")
    with pytest.raises(ExecutableFailedError, match="Windows line endings"):
        await run_executable(lost, make_helpers())
    lost.unlink()
    with pytest.raises(ExecutableFailedError, match="lost cannot be started: No such file"):
        await run_executable(lost, make_helpers())


async def test_a_child_that_does_not_read_its_input_does_no_harm(
    folder: Any, make_job: Any, make_helpers: Any
) -> None:
    script = folder.write("deaf.sh", "#!/bin/sh\nexec <&-\nexit 0", executable=True)
    large = make_job(raw_payload='"' + "x" * 5_000_000 + '"')
    for _ in range(3):
        await run_executable(script, make_helpers(large))


async def test_a_large_payload_arrives_whole(
    folder: Any, make_job: Any, make_helpers: Any, logged: Any
) -> None:
    script = folder.write("count.sh", "#!/bin/sh\nwc -c", executable=True)
    await run_executable(script, make_helpers(make_job(raw_payload='"' + "x" * 5_000_000 + '"')))
    assert [text.strip() for _, text in logged()] == [str(5_000_000 + len('{"payload":""}'))]


async def test_something_left_running_in_the_background_does_not_hold_the_job(
    folder: Any, make_helpers: Any, logged: Any
) -> None:
    script = folder.write(
        "daemon.sh", "#!/bin/sh\nsleep 600 &\necho $! > child.pid\necho started\nexit 0", executable=True
    )
    try:
        await asyncio.wait_for(run_executable(script, make_helpers()), PATIENCE)
    finally:
        os.kill(int((folder.project / "child.pid").read_text()), signal.SIGKILL)
    assert logged() == [("INFO", "started")]


# -- ending ------------------------------------------------------------------------------------------------

WAITS = "#!/bin/sh\ntrap 'echo asked >> asked; exit 4' TERM\ntouch ready\nwhile :; do sleep 0.02; done"
IGNORES = "#!/bin/sh\ntrap '' TERM\necho $$ > pid\ntouch ready\nwhile :; do sleep 0.02; done"


async def test_the_abort_signal_asks_the_child_to_end(folder: Any, make_helpers: Any, until: Any) -> None:
    script = folder.write("wait.sh", WAITS, executable=True)
    abort_signal = AbortSignal()
    running = asyncio.ensure_future(run_executable(script, make_helpers(abort_signal=abort_signal)))
    await until((folder.project / "ready").exists)
    abort_signal.set("the worker got SIGTERM")
    with pytest.raises(JobInterruptedError) as caught:
        await asyncio.wait_for(running, PATIENCE)
    assert str(caught.value) == f"the worker got SIGTERM: {script} exited with status 4"
    assert (folder.project / "asked").read_text() == "asked\n"


async def test_a_child_that_ends_well_although_asked_has_succeeded(
    folder: Any, make_helpers: Any, until: Any
) -> None:
    script = folder.write("wait.sh", WAITS.replace("exit 4", "exit 0"), executable=True)
    abort_signal = AbortSignal()
    running = asyncio.ensure_future(run_executable(script, make_helpers(abort_signal=abort_signal)))
    await until((folder.project / "ready").exists)
    abort_signal.set()
    await asyncio.wait_for(running, PATIENCE)


async def test_a_child_that_takes_no_notice_is_killed(folder: Any, make_helpers: Any, until: Any) -> None:
    script = folder.write("ignore.sh", IGNORES, executable=True)
    abort_signal = AbortSignal()
    helpers = make_helpers(abort_signal=abort_signal)
    running = asyncio.ensure_future(run_executable(script, helpers, kill_after=0.05))
    await until((folder.project / "ready").exists)
    abort_signal.set("stopping")
    with pytest.raises(JobInterruptedError, match="was ended by SIGKILL"):
        await asyncio.wait_for(running, PATIENCE)


async def test_what_the_child_started_is_ended_with_it(folder: Any, make_helpers: Any, until: Any) -> None:
    script = folder.write(
        "parent.sh", "#!/bin/sh\nsleep 600 &\necho $! > child.pid\ntouch ready\nwait", executable=True
    )
    abort_signal = AbortSignal()
    running = asyncio.ensure_future(run_executable(script, make_helpers(abort_signal=abort_signal)))
    await until((folder.project / "ready").exists)
    abort_signal.set()
    with pytest.raises(JobInterruptedError):
        await asyncio.wait_for(running, PATIENCE)
    await until(lambda: is_gone(folder.project / "child.pid"))


async def test_cancelling_the_task_ends_the_child_and_waits_for_it(
    folder: Any, make_helpers: Any, until: Any
) -> None:
    script = folder.write("ignore.sh", IGNORES, executable=True)
    running = asyncio.ensure_future(run_executable(script, make_helpers(), kill_after=0.05))
    await until((folder.project / "ready").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, PATIENCE)
    await until(lambda: is_gone(folder.project / "pid"))


async def test_cancelling_twice_kills_the_child_at_once(folder: Any, make_helpers: Any, until: Any) -> None:
    script = folder.write("stay.sh", IGNORES.replace("trap ''", "trap 'touch asked'"), executable=True)
    running = asyncio.ensure_future(run_executable(script, make_helpers(), kill_after=600))
    await until((folder.project / "ready").exists)
    running.cancel()
    await until((folder.project / "asked").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, PATIENCE)
    await until(lambda: is_gone(folder.project / "pid"))


@pytest.mark.parametrize("steps", range(6))
async def test_cancelling_while_the_child_is_being_started_ends_at_once(
    folder: Any, make_helpers: Any, steps: int
) -> None:
    script = folder.write("slow.sh", "#!/bin/sh\nexec sleep 60", executable=True)
    running = asyncio.ensure_future(run_executable(script, make_helpers(), kill_after=600))
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, PATIENCE)


async def test_a_child_that_runs_too_long_is_ended(folder: Any, make_helpers: Any) -> None:
    script = folder.write("slow.sh", "#!/bin/sh\nexec sleep 60", executable=True)
    with pytest.raises(ExecutableFailedError, match=r"ran for more than 0\.05 seconds and was ended"):
        await asyncio.wait_for(run_executable(script, make_helpers(), time_limit=0.05), 60)


async def test_nothing_is_started_once_the_worker_wants_tasks_to_end(folder: Any, make_helpers: Any) -> None:
    script = folder.write("touch.sh", "#!/bin/sh\ntouch started", executable=True)
    abort_signal = AbortSignal()
    abort_signal.set("stopping")
    with pytest.raises(JobInterruptedError, match="stopping"):
        await run_executable(script, make_helpers(abort_signal=abort_signal))
    assert not (folder.project / "started").exists()


def is_gone(process_file: Path) -> bool:
    """Whether the process has exited, reaped or not."""
    process = int(process_file.read_text())
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # no /proc here, or the process exited in between
        return False


# -- parts -------------------------------------------------------------------------------------------------


def test_lines_are_put_together_from_chunks() -> None:
    lines: list[str] = []
    output = OutputLines(lines.append)
    text = "grüße\r\n\nzwei\n".encode()
    for position in range(len(text)):
        output.feed(text[position : position + 1])
    output.feed(b"rest \xff")
    assert lines == ["grüße", "zwei"]
    output.finish()
    assert lines == ["grüße", "zwei", "rest �"]
    assert output.last == "rest �"


def test_a_line_without_end_is_passed_on_in_pieces() -> None:
    lines: list[str] = []
    output = OutputLines(lines.append)
    output.feed(b"x" * (2 * MAX_LINE + 5))
    assert [len(line) for line in lines] == [MAX_LINE, MAX_LINE]


async def test_a_child_that_was_never_started_can_be_closed() -> None:
    child = ChildProcess(OutputLines(print), OutputLines(print))
    child.close()
    with pytest.raises(OSError, match="No such file"):
        await child.start(Path("/no/such/file"), {}, b"")
    child.close()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 118", Snooze(60)),
        ("echo 5; exit 118", Snooze(5)),
        ("echo later >&2; echo 2.5; exit 118", Snooze(2.5, "later")),
        ("echo busy >&2; echo 7; exit 117", RetryIn(7, "busy")),
        ("echo nonsense; echo busy >&2; exit 117", ExecutableFailedError("busy")),
        ("echo -1; exit 118", Snooze(60)),
        ("echo no >&2; exit 119", GiveUp("no")),
    ],
)
async def test_an_executable_chooses_its_ending(
    folder: Any, make_job: Any, make_helpers: Any, script: str, expected: Exception
) -> None:
    folder.write("end", f"#!/bin/sh\n{script}\n", executable=True)
    made = load_tasks("tasks")["end"]
    with pytest.raises(type(expected)) as raised:
        await made._invoke(None, make_helpers(make_job(task_identifier="end")))
    assert (str(raised.value), vars(raised.value)) == (str(expected), vars(expected))
