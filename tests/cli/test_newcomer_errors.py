"""Typical mistakes of newcomers, one test each, with the command; some of them in a process of its own.

No message is a traceback, none shows a password, and the exit status says that nothing was done.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from pathlib import Path

import asyncpg
import pytest

from cli.guarded import GuardedServer
from support.cases import looped
from support.command_line import Call, Result
from support.ports import unused_port

HELLO = "def hello(payload):\n    print('hello', payload, flush=True)\n"


@pytest.fixture
def tasks(place: Path) -> Path:
    directory = place / "tasks"
    directory.mkdir()
    (directory / "hello.py").write_text(HELLO)
    return directory


def advises(result: Result, *words: str, status: int = 1) -> str:
    """The error message, which contains these words."""
    assert result.status == status, (result.out, result.err)
    for word in words:
        assert word in result.err, result.err
    assert "Traceback" not in result.err + result.out
    return result.err


# -- tasks ---------------------------------------------------------------------------------------------------


def test_no_task_directory(spawn: Call, place: Path, database_url: str) -> None:
    result = spawn("--once", DATABASE_URL=database_url)
    advises(result, f"'{place}/tasks' does not exist; create it with a file such as hello.py", "--tasks")
    advises(spawn("dev"), "there is no directory tasks", "create it with `graphile-worker init`", "--tasks")


def test_a_directory_without_tasks(call: Call, place: Path, database_url: str) -> None:
    (place / "tasks").mkdir()
    call("add", "hello", DATABASE_URL=database_url).check()
    result = call("--once", DATABASE_URL=database_url)
    assert "Traceback" not in result.err
    assert "no task" in result.err + result.out


def test_a_task_that_raises_at_import(call: Call, tasks: Path, database_url: str) -> None:
    (tasks / "report.py").write_text('import os\n\nKEY = os.environ["API_KEY_OF_REPORTS"]\n')
    result = call("--once", DATABASE_URL=database_url)
    advises(
        result, f"{tasks}/report.py:3: cannot be imported: KeyError: 'API_KEY_OF_REPORTS'"
    )  # the line that raised


def test_a_file_whose_function_has_another_name(call: Call, tasks: Path, database_url: str) -> None:
    (tasks / "send_email.py").write_text("def sendEmail(payload): ...\n")
    result = call("--once", DATABASE_URL=database_url)
    advises(
        result, "send_email.py: ", "expected a function named 'send_email'", "it has the functions sendEmail"
    )


def test_a_package_that_this_python_does_not_have(spawn: Call, tasks: Path, database_url: str) -> None:
    (tasks / "report.py").write_text("import a_missing_package\n\ndef report(): ...\n")
    result = spawn("--once", DATABASE_URL=database_url)
    version = ".".join(map(str, sys.version_info[:3]))
    advises(
        result,
        "report.py:1: cannot be imported: ModuleNotFoundError: No module named 'a_missing_package'",
        f"this worker runs on Python {version} ({sys.executable}); install the missing package there",
        "-m pip install",
    )


def test_a_syntax_error_is_not_blamed_on_the_version_of_python(
    call: Call, tasks: Path, database_url: str
) -> None:
    (tasks / "report.py").write_text("def report(payload):\n    print 'python 2'\n")
    result = call("--once", DATABASE_URL=database_url)
    assert "report.py:2: cannot be imported: SyntaxError" in result.err
    assert "hint" not in result.err  # the message says it all; newer syntax is the least likely cause


def test_a_script_whose_interpreter_is_missing(call: Call, tasks: Path, database_url: str) -> None:
    script = tasks / "report"
    script.write_text("#!/usr/local/bin/python9.9\nprint('hello')\n")
    script.chmod(0o755)
    call("add", "report", DATABASE_URL=database_url).check()
    result = call("--once", DATABASE_URL=database_url).check()  # the job fails, the worker does not
    assert "its first line asks for /usr/local/bin/python9.9, which is not on this machine" in result.err
    assert "retrying in 2.7 s" in result.err


# -- the database --------------------------------------------------------------------------------------------


def test_no_database_is_named(call: Call, tasks: Path) -> None:
    for arguments in (["--once"], ["add", "hello"]):
        advises(
            call(*arguments),
            "no database was given; set connection_string (on the command line -c/--connection)",
            "-c/--connection",
            "DATABASE_URL",
            "hint: to try it without a server, run `graphile-worker dev`",
        )
    assert "run `graphile-worker dev`" in " ".join(call("doctor").out.split())


def test_no_server(call: Call, closed_port: int) -> None:
    result = call("list", "-c", f"postgres://me:s3cret@127.0.0.1:{closed_port}/db")
    err = advises(
        result, f"127.0.0.1:{closed_port} cannot be reached", "is it running, and are host and port right?"
    )
    assert "s3cret" not in err


def test_a_host_that_does_not_exist(call: Call) -> None:
    result = call("list", "-c", "postgres://no.such.host.invalid/db")
    advises(result, "no.such.host.invalid:5432 cannot be found", "is the host name right?")


def test_a_wrong_password(call: Call, guarded: GuardedServer) -> None:
    result = call("list", "-c", guarded.url("wrong-s3cret"))
    err = advises(result, "refused the login", 'for user "guarded"', "check the user and the password")
    assert "wrong-s3cret" not in err


def test_a_missing_database(call: Call, guarded: GuardedServer) -> None:
    result = call("--schema-only", "-c", guarded.url(database="my_app"))
    advises(result, "has no such database", '"my_app"', "create it first, for example with createdb")


def test_a_missing_schema(call: Call, empty_database_url: str) -> None:
    for arguments in (["list"], ["add", "hello"]):
        result = call(*arguments, DATABASE_URL=empty_database_url)
        advises(
            result,
            'the schema "graphile_worker"',
            "is not installed",
            "install it with `graphile-worker migrate`",
        )


def test_no_rights(spawn: Call, guarded: GuardedServer) -> None:
    newcomer = guarded.url("right", user="newcomer")
    advises(
        spawn("migrate", "--schema", "closed", "-c", newcomer),
        "the role may not install or upgrade the schema",
        "let an administrator run: create schema",
    )
    spawn("migrate", "--schema", "closed", "-c", guarded.url()).check()
    advises(
        spawn("add", "hello", "--schema", "closed", "-c", newcomer),
        "the connected role may not do this",
        "SECURITY DEFINER",
    )
    installed = advises(
        spawn("migrate", "--schema", "closed", "-c", newcomer),
        "connect as its owner guarded, or let an administrator run: grant guarded to newcomer",
    )
    assert "create schema" not in installed


def test_no_rights_on_a_schema_that_exists(spawn: Call, guarded: GuardedServer) -> None:
    newcomer = guarded.url("right", user="newcomer")

    async def administer(*statements: str) -> None:
        connection = await asyncpg.connect(guarded.url())
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    asyncio.run(administer("create schema reserved"))
    found = advises(
        spawn("migrate", "--schema", "reserved", "-c", newcomer),
        'the schema exists; let its owner guarded run: grant usage, create on schema "reserved" to newcomer',
    )
    assert "create schema" not in found
    asyncio.run(administer('grant usage, create on schema "reserved" to newcomer'))
    spawn("migrate", "--schema", "reserved", "-c", newcomer).check()


def test_a_server_without_tls(call: Call, guarded: GuardedServer) -> None:
    result = call("list", "-c", f"{guarded.url()}?sslmode=require")
    advises(result, "does not accept TLS", "take sslmode or ssl out of the connection string")


def test_a_url_of_another_database_or_none_at_all(call: Call) -> None:
    advises(call("list", "-c", "mysql://localhost/db"), "starts with postgres://", "mysql://")
    advises(call("list", "-c", "localhost"), "expected a URL such as postgres://user@host/database")
    err = advises(call("list", "-c", "postgres://me:s3cret/x@localhost/db"), "in a password / is written %2F")
    assert "s3cret" not in err


def test_a_port_that_is_taken(spawn: Call, tasks: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = spawn("dev", "--port", port)
    advises(result, f"--port: port {port} cannot be used", "choose another one, or 0 for any free port")


# -- crontabs and names --------------------------------------------------------------------------------------


def test_a_crontab_with_mistakes(call: Call, tasks: Path, place: Path, database_url: str) -> None:
    (place / "crontab").write_text("# comment\n* * * * hello\n0 25 * * * hello\n0 4 * * * helo\n")
    result = call("--once", DATABASE_URL=database_url)
    err = advises(result, "crontab:2:1: ", "expected five time fields and a task, found 5 words")
    assert "crontab:3:3: " in err  # all errors at once, with their positions
    (place / "crontab").write_text("0 4 * * * helo\n")
    checked = call("crontab", "check")
    assert checked.status == 1
    assert "helo" in checked.out
    assert "hello" in checked.out


def test_a_misspelt_task(call: Call, tasks: Path, database_url: str) -> None:
    call("--once", DATABASE_URL=database_url).check()  # now the task is in the database
    shutil.rmtree(tasks)
    result = call("add", "helo", DATABASE_URL=database_url).check()
    assert result.out.startswith("Added job 1: helo")
    advises(
        result,
        "no worker has registered a task 'helo'; did you mean 'hello'?",
        "The job waits for a worker with this task; to remove it: `graphile-worker cancel 1`.",
        status=0,
    )
    again = call("add", "helo", DATABASE_URL=database_url).check()
    advises(again, "did you mean 'hello'?", status=0)
    for name in ("helllo", "helo"):  # that someone has added a job for it before proves nothing
        refused = call("add", name, "--strict", DATABASE_URL=database_url)
        advises(refused, "did you mean 'hello'?", "Nothing was added, because of --strict")
    unheard = call("add", "refund", DATABASE_URL=database_url).check()
    advises(unheard, "no worker has registered a task 'refund'.", status=0)
    refused = call("add", "refund", "--strict", DATABASE_URL=database_url)
    advises(refused, "no worker has registered a task 'refund'. Nothing was added, because of --strict")
    assert len(call("list", "--json", DATABASE_URL=database_url).json) == 3
    call("add", "hello", "--strict", DATABASE_URL=database_url).check()


@looped(
    ("arguments", "words"),
    [
        (["lst"], "Did you mean 'list'?"),
        (["run"], "Without a command, `graphile-worker` runs a worker"),
        (["help"], "Did you mean `graphile-worker --help`?"),
        (["redrive", "1"], "Did you mean 'retry'?"),
        (["requeue", "--all"], "Did you mean 'retry'?"),
        (["inspect"], "Did you mean 'workers'?"),
        (["-A", "shop.worker:app"], "Did you mean '--app'?"),
        (["--concurrency", "4"], "Did you mean '--jobs'?"),
        (["--database-url", "postgres:///x"], "Did you mean '--connection'?"),
        (["add", "hello", "name=Ada"], """quotes around it: '{"a": 1}'"""),
        (["show", "hello"], "is not a job id; ids are numbers, and `graphile-worker list` shows them"),
        (
            ["complete"],
            "Name the jobs by id or with --key, choose them by filters such as --state, or use --all",
        ),
        (["add", "hello", "--run-at", "tomorrow"], "nor a period from now such as 5m, 2h or 1d12h"),
    ],
)
def test_words_of_other_tools(call: Call, arguments: list[str], words: str) -> None:
    advises(call(*arguments), words, status=2)


def test_a_misspelt_option_in_the_configuration(call: Call, place: Path) -> None:
    (place / "graphile_worker.toml").write_text('conection_string = "postgres://me:s3cret@host/db"\n')
    err = advises(call("config"), "graphile_worker.toml", "conection_string", "connection_string")
    assert "s3cret" not in err


@pytest.fixture
def closed_port() -> int:
    """A port without a server."""
    return unused_port()


# -- which names are misspelt --------------------------------------------------------------------------------


async def test_names_that_are_good_get_no_warning(gw: Call, connection: asyncpg.Connection) -> None:
    async def warning(*arguments: str) -> str:
        return (await asyncio.to_thread(gw, "add", *arguments)).check().err

    assert await warning("anything") == ""  # no worker has run yet
    assert await warning("anythin") == ""
    await connection.execute(
        "insert into graphile_worker._private_py_workers "
        "(id, host, pid, version, tasks, concurrency, liveness, heartbeat_interval, grace) "
        "values ('pool', 'here', 1, '1', '{anything,users/email/verify}', 1, 'heartbeat', '10 s', '1 hour')"
    )
    for _ in range(2):
        said = await warning("anythin")
        assert "no worker has registered a task 'anythin'; did you mean 'anything'?" in said
    assert await warning("anything") == ""
    assert "did you mean 'users/email/verify'?" in await warning("verify")
    assert "did you mean 'anything'?" in await warning("Anything")
    assert "no worker has registered a task 'refund'. The job waits" in await warning("refund")
    await connection.execute("update graphile_worker._private_jobs set attempts = 1")  # by a worker of Node
    assert await warning("refund") == ""
    await connection.execute("delete from graphile_worker._private_jobs")  # it has run them all
    assert await warning("refund") == ""
    assert (await asyncio.to_thread(gw, "add", "refund", "--strict")).status == 1, "that proves nothing"


def test_names_in_a_file_are_checked_too(gw: Call, tasks: Path, place: Path) -> None:
    gw("add", "hello").check()
    (place / "jobs.jsonl").write_text(
        '{"task": "helo"}\n{"task": "helo"}\n{"task": "hello"}\n{"task": "other"}\n'
    )
    result = gw("add", "--from", "jobs.jsonl", "--json").check()
    assert result.json == {"added": 4}
    assert result.err.count("did you mean 'hello'?") == 1
    (place / "jobs.jsonl").write_text('{"task": "hello"}\n{"task": "new"}\n')
    refused = gw("add", "--from", "jobs.jsonl", "--strict")
    assert refused.status == 1
    assert "no worker has registered a task 'new'. Nothing was added" in refused.err
    assert len(gw("list", "--json").json) == 5


async def test_adding_works_without_a_warning_where_names_cannot_be_read(
    call: Call, connection: asyncpg.Connection, database_url: str
) -> None:
    await connection.execute("drop table graphile_worker._private_py_workers")
    result = await asyncio.to_thread(call, "add", "hello", DATABASE_URL=database_url)
    assert result.check().err == ""
