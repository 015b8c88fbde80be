"""Executable files, in any language, as tasks: one child process per job (TL6).

The child gets the job in its environment and the payload as JSON on standard input. Its output becomes log
lines of the job. Exit status 0 is success, some others are directives that the child chooses, the rest are
failures. When the job is aborted or cancelled, the child's process group gets SIGTERM and, if it does not
exit, SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ...errors import ExecutableFailedError, InvalidArgumentError, JobInterruptedError, TaskLoadError
from ...values.attempts import MAX_DELAY, GiveUp, RetryIn, Snooze
from ...values.job import Job
from ...values.payload import without_trace
from ...values.spec import MAX_IDENTIFIER_LENGTH, check_name
from ...values.text import signal_name
from ..helpers import JobHelpers
from ..task import AnyTask, Task
from .child_process import ChildProcess, OutputLines
from .process_group import SHUTDOWN_LIMIT

TIME_LIMIT = 4 * 60 * 60.0
"""Seconds; after that, other workers treat the job's lock as stale."""
KILL_AFTER = 5.0
"""Seconds between SIGTERM and SIGKILL."""
OUTPUT_TIMEOUT = 1.0
"""Seconds to wait for output after the exit, in case a background process keeps the pipe open."""
EXIT_RETRY = 117
EXIT_SNOOZE = 118
EXIT_GIVE_UP = 119
"""Exit statuses with a meaning, far from those that shells and common programs use."""
SNOOZE_FOR = 60.0
"""Seconds, unless the child prints a number."""
MAX_QUOTE = 500  # characters of the child's last error line in the message


async def run_executable(
    path: Path, helpers: JobHelpers, *, time_limit: float = TIME_LIMIT, kill_after: float = KILL_AFTER
) -> None:
    """Run the file for the helpers' job.

    Raises ExecutableFailedError if it failed, JobInterruptedError if it ended because the job was aborted,
    and a directive if it exited with the status of one.
    """
    helpers.raise_if_aborted()
    logger = helpers.logger
    stderr = OutputLines(lambda line: logger.error("%s", line))
    stdout = OutputLines(lambda line: logger.info("%s", line))
    child = ChildProcess(stdout, stderr)
    aborted = asyncio.ensure_future(helpers.abort_signal.wait())
    try:
        services = helpers._services
        environment = job_environment(helpers.job, with_database=services.executables_inherit_database)
        for capture in services.environments:
            environment |= capture()
        await _start(child, path, helpers.job, environment)
        await asyncio.wait((child.exited, aborted), timeout=time_limit, return_when=asyncio.FIRST_COMPLETED)
        ended_by_us = not child.exited.done()
        if ended_by_us:
            await child.end(kill_after)
        await child.finish_output(OUTPUT_TIMEOUT)
    except asyncio.CancelledError:
        grace = helpers.abort_signal._grace
        await child.end(min(kill_after, SHUTDOWN_LIMIT) if grace is None else grace)
        raise
    finally:
        aborted.cancel()
        child.close()
    status = child.exited.result() if child.exited.done() else -signal.SIGKILL
    if ended_by_us and not helpers.abort_signal.is_set():
        raise ExecutableFailedError(f"{path} ran for more than {time_limit:g} seconds and was ended")
    if status == 0:
        return
    if ended_by_us:
        raise JobInterruptedError(f"{helpers.abort_signal.reason}: {path} {describe_status(status)}")
    if status in (EXIT_RETRY, EXIT_SNOOZE, EXIT_GIVE_UP):
        raise _ending(path, status, stdout.last, stderr.last[:MAX_QUOTE])
    quote = f": {stderr.last[:MAX_QUOTE]}" if stderr.last else ""
    raise ExecutableFailedError(f"{path} {describe_status(status)}{quote}")


def _ending(path: Path, status: int, last_line: str, reason: str) -> Exception:
    """What a child asks for by its exit status; the last line of its output may be a number of seconds."""
    if status == EXIT_GIVE_UP:
        return GiveUp(reason or f"{path} gave up with status {status}")
    delay = _seconds(last_line)
    if status == EXIT_SNOOZE:
        return Snooze(SNOOZE_FOR if delay is None else delay, reason or None)
    reason = reason or f"{path} requested a retry with status {status}"
    return ExecutableFailedError(reason) if delay is None else RetryIn(delay, reason)


def _seconds(line: str) -> float | None:
    try:
        seconds = float(line)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= MAX_DELAY else None


def job_environment(job: Job, *, with_database: bool = True) -> dict[str, str]:
    """The worker's environment, with the variables of this job.

    `with_database`: keep the variables for the worker's database, with its password.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not _is_about_a_job(name) and (with_database or not _is_about_the_database(name))
    }
    environment |= {
        "GRAPHILE_WORKER_PAYLOAD_FORMAT": "json",
        "GRAPHILE_WORKER_TASK_IDENTIFIER": job.task_identifier,
        "GRAPHILE_WORKER_JOB_ID": str(job.id),
        "GRAPHILE_WORKER_JOB_ATTEMPTS": str(job.attempts),
        "GRAPHILE_WORKER_JOB_MAX_ATTEMPTS": str(job.max_attempts),
        "GRAPHILE_WORKER_JOB_PRIORITY": str(job.priority),
        "GRAPHILE_WORKER_JOB_RUN_AT": _iso_utc(job.run_at),
        "GRAPHILE_WORKER_EXIT_RETRY": str(EXIT_RETRY),
        "GRAPHILE_WORKER_EXIT_SNOOZE": str(EXIT_SNOOZE),
        "GRAPHILE_WORKER_EXIT_GIVE_UP": str(EXIT_GIVE_UP),
    }
    if job.key is not None:
        environment["GRAPHILE_WORKER_JOB_KEY"] = job.key
    return environment


def describe_status(status: int) -> str:
    """Describe an exit status: "exited with status 3", "was ended by SIGKILL"."""
    if status >= 0:
        return f"exited with status {status}"
    return f"was ended by {signal_name(-status)}"


async def _start(child: ChildProcess, path: Path, job: Job, environment: Mapping[str, str]) -> None:
    # The text of the payload, not a decoded copy: the child gets exactly what was added.
    stdin = f'{{"payload":{without_trace(job.raw_payload)}}}'.encode()
    try:
        await child.start(path, environment, stdin)
    except OSError as error:
        raise ExecutableFailedError(f"{path} cannot be started: {_start_failure(error, path)}") from error


def _start_failure(error: OSError, path: Path) -> str:
    """The system's message, except that "no such file" may mean the interpreter of a script."""
    if isinstance(error, FileNotFoundError) and path.exists():
        with path.open("rb") as script:
            first = script.readline(1024).decode(errors="replace")
        words = first.removeprefix("#!").split()
        if first.startswith("#!") and first.endswith("\r\n"):
            return "it has Windows line endings (CRLF), so its interpreter is not found; save it with LF"
        if first.startswith("#!") and words:
            return (
                f"its first line asks for {words[0]}, which is not on this machine; "
                "install it, or change the line"
            )
    return error.strerror or str(error)


def _iso_utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_about_the_database(name: str) -> bool:
    return name in ("DATABASE_URL", "GRAPHILE_WORKER_CONNECTION_STRING") or name.startswith("PG")


def _is_about_a_job(name: str) -> bool:
    return name.startswith(("GRAPHILE_WORKER_JOB_", "GRAPHILE_WORKER_TASK_", "GRAPHILE_WORKER_PAYLOAD_"))


def executable_task(identifier: str, path: Path) -> AnyTask:
    """A task that runs the file once per job; the payload is passed on without being decoded."""
    try:
        check_name("identifier", identifier, MAX_IDENTIFIER_LENGTH)
    except InvalidArgumentError as error:
        raise TaskLoadError(str(error), path=str(path)) from None

    async def run_file(helpers: JobHelpers) -> None:
        await run_executable(path, helpers)

    return Task(run_file, identifier, path=str(path))
