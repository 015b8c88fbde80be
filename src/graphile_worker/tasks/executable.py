"""Running an executable file as a task: one child process per job (TL6).

The child gets the job in its environment and the payload as JSON on standard input. What it writes becomes
log lines of the job; exit status 0 is success. When the worker wants the task to end, or cancels it, the
child and what it started get SIGTERM and, if they do not end, SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ..errors import ExecutableFailedError, JobInterruptedError
from ..job import Job
from ..signal_names import signal_name
from .child_process import ChildProcess
from .helpers import JobHelpers
from .output_lines import OutputLines

TIME_LIMIT = 4 * 60 * 60.0
"""No child runs longer than other workers honour the job's lock."""
KILL_AFTER = 5.0
"""Seconds between SIGTERM and SIGKILL."""
LINGER = 1.0
"""Seconds to wait for output when the child is gone but something that it started holds the pipe."""
LONGEST_QUOTE = 500  # characters of the child's last error line that are put into the message


async def run_executable(
    path: Path, helpers: JobHelpers, *, time_limit: float = TIME_LIMIT, kill_after: float = KILL_AFTER
) -> None:
    """Run the file for the helpers' job.

    ExecutableFailedError says how it failed; JobInterruptedError that it ended because the worker asked.
    """
    helpers.raise_if_aborted()
    logger = helpers.logger
    stderr = OutputLines(lambda line: logger.error("%s", line))
    child = ChildProcess(OutputLines(lambda line: logger.info("%s", line)), stderr)
    asked = asyncio.ensure_future(helpers.abort_signal.wait())
    try:
        environment = job_environment(
            helpers.job, with_database=helpers._services.executables_inherit_database
        )
        await _start(child, path, helpers.job, environment)
        await asyncio.wait((child.exited, asked), timeout=time_limit, return_when=asyncio.FIRST_COMPLETED)
        ended_by_us = not child.exited.done()
        if ended_by_us:
            await child.end(kill_after)
        await child.finish_output(LINGER)
    except asyncio.CancelledError:
        await child.end(kill_after)
        raise
    finally:
        asked.cancel()
        child.close()
    status = child.exited.result() if child.exited.done() else -signal.SIGKILL
    if ended_by_us and not helpers.abort_signal.is_set():
        raise ExecutableFailedError(f"{path} ran for more than {time_limit:g} seconds and was ended")
    if status == 0:
        return
    if ended_by_us:
        raise JobInterruptedError(f"{helpers.abort_signal.reason}: {path} {describe_status(status)}")
    quote = f": {stderr.last[:LONGEST_QUOTE]}" if stderr.last else ""
    raise ExecutableFailedError(f"{path} {describe_status(status)}{quote}")


def job_environment(job: Job, *, with_database: bool = True) -> dict[str, str]:
    """The worker's own environment, with the job's variables in place of any that were inherited.

    `with_database`: whether the variables with which the worker finds its database, and its password, stay.
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
    }
    if job.key is not None:
        environment["GRAPHILE_WORKER_JOB_KEY"] = job.key
    return environment


def describe_status(status: int) -> str:
    """How a process ended, in words: "exited with status 3", "was ended by SIGKILL"."""
    if status >= 0:
        return f"exited with status {status}"
    return f"was ended by {signal_name(-status)}"


async def _start(child: ChildProcess, path: Path, job: Job, environment: Mapping[str, str]) -> None:
    # The payload's own text, not a decoded copy: the child sees exactly what was added.
    stdin = f'{{"payload":{job.raw_payload}}}'.encode()
    try:
        await child.start(path, environment, stdin)
    except OSError as error:
        raise ExecutableFailedError(f"{path} cannot be started: {_why(error, path)}") from error


def _why(error: OSError, path: Path) -> str:
    """The system's words; but it says "no such file" of a script whose interpreter is missing, too."""
    if isinstance(error, FileNotFoundError) and path.exists():
        with path.open("rb") as script:
            first = script.readline(1024).decode(errors="replace")
        words = first.removeprefix("#!").split()
        if first.startswith("#!") and first.endswith("\r\n"):
            return "its lines end as on Windows (CRLF), so that its interpreter is not found; save it with LF"
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
