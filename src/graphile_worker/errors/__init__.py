"""Every error this package raises on purpose.

    GraphileWorkerError
    ├── ConfigError                  an option, file or argument is invalid
    │   ├── ConnectionConfigError    no database was configured, or more than one
    │   │   └── NoDatabaseError      no database was configured
    │   ├── CrontabError             a crontab line or item is invalid
    │   └── TaskLoadError            a task cannot be loaded
    │       └── AppLoadError         the app cannot be loaded
    ├── InvalidArgumentError         an argument for adding or managing jobs is invalid
    │   └── InvalidPayloadError      the payload does not match the task it is added for; also a PayloadError
    ├── DatabaseError                the database refused, or cannot be reached
    │   ├── ConnectionFailedError    server unreachable, password wrong, database missing
    │   ├── SchemaMissingError       the Graphile Worker schema is not installed
    │   ├── PermissionDeniedError    the role lacks a privilege
    │   ├── JobNotAddedError         a keyed add returned no job, even when retried
    │   ├── JobBusyError             another transaction has locked the row of the job
    │   └── MigrationError           the schema could not be installed or upgraded
    │       ├── SchemaTooOldError    too old for this package to upgrade
    │       └── SchemaTooNewError    has a breaking migration of a newer version
    ├── JobError                     one job failed; the worker is fine
    │   ├── UnknownTaskError         no task has the job's identifier
    │   ├── PayloadError             the payload does not match the task's annotation
    │   ├── BatchFailureError        some items of a batch job failed
    │   ├── ResultError              the result of a kept job cannot be stored, or has another type
    │   ├── JobInterruptedError      the task was asked to end early
    │   ├── JobTimeoutError          the task ran longer than its time limit; also a TimeoutError
    │   ├── ExecutableFailedError    an executable task exited with an error
    │   ├── ProcessDiedError         the process that ran the task ended before the task did
    │   ├── RemoteTaskError          a task failed in another process with an error that cannot be sent
    │   └── ExtensionMissingError    a task asked for an application object that was not passed
    ├── JobFailedError               the job that a client waited for has failed permanently
    ├── JobCancelledError            the job that a client waited for was cancelled
    ├── JobGoneError                 the job that a client waited for is gone, and it was not kept
    ├── JobRefusedError              an interceptor refused to add the job
    ├── PluginError                  a plugin failed to start
    ├── LifespanError                the lifespan of an app failed
    ├── WorkerStoppedError           the worker stopped, by an error or a forced shutdown
    │   ├── LeakedTasksError         it stopped, but some tasks did not end even when cancelled
    │   └── WorkerUnhealthyError     it stopped because too many tasks ran on after their jobs were ended
    ├── WorkerNotFoundError          no running Python worker has this id
    ├── WorkerRequestError           a worker has not done what it was asked
    ├── StackUnavailableError        the stack of a job is unavailable
    └── EmbeddedPostgresError        the embedded server cannot be found, started or stopped

Each message names the cause and the fix; details are available as attributes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .text import place_of, summarize, summarize_members, without_places

__all__ = [
    "AppLoadError",
    "BatchFailureError",
    "ConfigError",
    "ConnectionConfigError",
    "ConnectionFailedError",
    "CrontabError",
    "CrontabProblem",
    "DatabaseError",
    "EmbeddedPostgresError",
    "ExecutableFailedError",
    "ExtensionMissingError",
    "GraphileWorkerError",
    "InvalidArgumentError",
    "InvalidPayloadError",
    "JobBusyError",
    "JobCancelledError",
    "JobError",
    "JobFailedError",
    "JobGoneError",
    "JobInterruptedError",
    "JobNotAddedError",
    "JobRefusedError",
    "JobTimeoutError",
    "LeakedTasksError",
    "LifespanError",
    "MigrationError",
    "NoDatabaseError",
    "PayloadError",
    "PermissionDeniedError",
    "PluginError",
    "ProcessDiedError",
    "RemoteTaskError",
    "ResultError",
    "SchemaMissingError",
    "SchemaTooNewError",
    "SchemaTooOldError",
    "StackUnavailableError",
    "TaskLoadError",
    "UnknownTaskError",
    "WorkerNotFoundError",
    "WorkerRequestError",
    "WorkerStoppedError",
    "WorkerUnhealthyError",
]


class GraphileWorkerError(Exception):
    """Root of all errors raised by this package."""


class ConfigError(GraphileWorkerError):
    """An option, file or argument is invalid."""


class ConnectionConfigError(ConfigError):
    """No database was configured, or more than one."""


class NoDatabaseError(ConnectionConfigError):
    """No database was configured."""


class CrontabError(ConfigError):
    """A crontab line or item is invalid; `problems` lists every fault with its location."""

    def __init__(self, message: str, *, problems: Sequence[CrontabProblem] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__(message)


class CrontabProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One fault in a crontab: its location, what was found, and what is allowed there.

    `line` and `column` start at 1 and are None for items defined in code.
    """

    source: str
    message: str
    line: int | None = None
    column: int | None = None
    text: str | None = None

    @property
    def place(self) -> str:
        """`source:line:column`, without the unknown parts."""
        parts = (self.source, self.line, self.column)
        return ":".join(str(part) for part in parts if part is not None)

    def __str__(self) -> str:
        lines = [f"{self.place}: {self.message}"]
        if self.text is not None:
            lines.append(f"    {self.text}")
            if self.column is not None:
                # Keep tabs, so that the caret is below its character.
                before = self.text[: self.column - 1]
                lines.append(
                    "    " + "".join("\t" if character == "\t" else " " for character in before) + "^"
                )
        return "\n".join(lines)


class TaskLoadError(ConfigError):
    """A task cannot be loaded; `path` and `line` say where."""

    def __init__(self, message: str, *, path: str | None = None, line: int | None = None) -> None:
        self.path = path
        self.line = line
        where = "" if path is None else f"{path}:{line}: " if line is not None else f"{path}: "
        super().__init__(f"{where}{message}")


class AppLoadError(TaskLoadError):
    """The app cannot be loaded, or is none; `path` and `line` say where."""


class InvalidArgumentError(GraphileWorkerError, ValueError):
    """An argument for adding or managing jobs is invalid; `argument` is its name."""

    def __init__(self, argument: str, message: str) -> None:
        self.argument = argument
        super().__init__(f"{argument}: {message}")


class DatabaseError(GraphileWorkerError):
    """The database refused, or cannot be reached; `sqlstate` is PostgreSQL's error code, if any."""

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        self.sqlstate = sqlstate
        super().__init__(message)


class ConnectionFailedError(DatabaseError):
    """The server cannot be reached, refused the password, or lacks the database.

    `is_away`: nothing accepts connections there, or not yet; the same attempt may succeed later.
    """

    def __init__(self, message: str, *, sqlstate: str | None = None, is_away: bool = False) -> None:
        self.is_away = is_away
        super().__init__(message, sqlstate=sqlstate)


class SchemaMissingError(DatabaseError):
    """The Graphile Worker schema, or a part of it, is not installed in this database."""


class PermissionDeniedError(DatabaseError):
    """The connected role lacks a privilege."""


class JobNotAddedError(DatabaseError):
    """A keyed add returned no job, even when retried."""


class JobBusyError(DatabaseError):
    """A job could not be changed because another transaction, usually that of the worker running it, has
    locked its row.

    Nothing was changed. The same call succeeds when the other transaction has ended.
    """


class MigrationError(DatabaseError):
    """The schema could not be installed or upgraded."""


class SchemaTooOldError(MigrationError):
    """The schema is too old for this package to upgrade."""


class SchemaTooNewError(MigrationError):
    """The schema has a breaking migration that this version does not support."""


class JobError(GraphileWorkerError):
    """One job failed; the worker itself is fine."""


class UnknownTaskError(JobError):
    """No task is registered under the job's identifier."""


class PayloadError(JobError):
    """The payload does not match the task's annotation; the message names the field."""


class InvalidPayloadError(InvalidArgumentError, PayloadError):
    """The payload does not match the annotation of the task that it is added for; names the field."""

    def __init__(self, message: str) -> None:
        super().__init__("payload", message)


class ResultError(JobError):
    """The result of a kept job is no JSON, is too large, or does not fit what its task returns."""


class BatchFailureError(JobError):
    """Some items of a batch job failed; `errors` holds one exception per failed item."""

    def __init__(self, errors: Sequence[BaseException]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(["Batch failures:", *summarize_members(self.errors)]))


class JobInterruptedError(JobError):
    """The task was asked to end early: the worker stops, or the job was aborted."""


class JobTimeoutError(JobError, TimeoutError):
    """The task ran longer than its time limit; `limit` is in seconds."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        super().__init__(f"the task ran longer than its time limit of {limit:g} s")

    def __reduce__(self) -> tuple[type[JobTimeoutError], tuple[float]]:
        return type(self), (self.limit,)


class ExecutableFailedError(JobError):
    """An executable task exited with an error status or was ended by a signal."""


class ProcessDiedError(JobError):
    """The process that ran the task ended before the task did; `status` is its exit status, if known.

    A negative status is the number of the signal that ended the process.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class RemoteTaskError(JobError):
    """A task failed in another process with an error that cannot be sent as it is.

    `remote_type` is the name of its type there. The message is unchanged, and tracebacks show that name.
    """

    remote_type: str = "Exception"


class ExtensionMissingError(JobError, LookupError):
    """A task asked for an application object that was not passed at start; `kind` is its type."""

    def __init__(self, kind: type, given: Sequence[str] = (), *, ambiguous: bool = False) -> None:
        self.kind = kind
        name, known = kind.__name__, ", ".join(given) or "none"
        if ambiguous:
            message = f"several extensions match {name}; ask for one of: {known}"
        else:
            fix = f"yield one from the lifespan of your app (--app), or call run(extensions=[{name}(...)])"
            message = f"no extension of type {name} (given: {known}); {fix}"
        super().__init__(message)


class JobFailedError(GraphileWorkerError):
    """The job that a client waited for has failed permanently.

    `error` is its last error. `message` is the same without the places in the code, for an answer to a user.

    `attempts` is the number of attempts that it had, None if that is not known: another runtime failed it.
    `how` says it in words.
    """

    def __init__(self, job_id: int, error: str | None, attempts: int | None = None, how: str = "") -> None:
        self.job_id = job_id
        self.error = error
        self.message = without_places(error)
        self.attempts = attempts
        self.how = how
        text = f", {how}" if how else ""
        super().__init__(f"job {job_id} failed permanently{text}: {error or 'no error was stored'}")


class JobCancelledError(GraphileWorkerError):
    """The job that a client waited for was cancelled or has expired."""

    def __init__(self, job_id: int, reason: str | None, *, has_expired: bool = False) -> None:
        self.job_id = job_id
        self.reason = reason
        self.has_expired = has_expired
        how = "has expired, so its task was not called" if has_expired else "was cancelled"
        super().__init__(f"job {job_id} {how}" + (f": {reason}" if reason else ""))


class JobGoneError(GraphileWorkerError):
    """The job that a client waited for is gone, and its outcome was not kept."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(
            f"job {job_id} does not exist any more, and it was not kept: add it with keep=True, or "
            "declare its task with @task(keep=True). Workers of other runtimes keep no finished jobs. A job "
            "that was added in a transaction is visible to others only after the commit"
        )


class JobRefusedError(GraphileWorkerError):
    """An interceptor refused to add the job."""


class PluginError(GraphileWorkerError):
    """A plugin failed to start, so the worker did not start; `plugin` is the name of its class."""

    def __init__(self, plugin: str, error: BaseException) -> None:
        self.plugin = plugin
        super().__init__(f"plugin {plugin} failed to start: {summarize(error)}")


class LifespanError(GraphileWorkerError):
    """The lifespan of an app failed, at its start or at its end; `app` is the app's name."""

    def __init__(self, app: str, when: str, error: BaseException) -> None:
        self.app = app
        place = place_of(error)
        super().__init__(f"the lifespan of {app} failed {when}: {summarize(error)}{place and f' ({place})'}")


class WorkerStoppedError(GraphileWorkerError):
    """The worker stopped, by an error or a forced shutdown."""


class LeakedTasksError(WorkerStoppedError):
    """The worker stopped and returned all jobs, but some tasks did not end; `jobs`: their names and ids."""

    def __init__(self, message: str, jobs: Sequence[tuple[str, int]]) -> None:
        self.jobs = tuple(jobs)
        names = ", ".join(f"{name} (job {job_id})" for name, job_id in self.jobs)
        super().__init__(
            f"{message}; these tasks did not end even when cancelled; they leaked, and their jobs "
            f"were returned to the queue: {names}"
        )


class WorkerUnhealthyError(WorkerStoppedError):
    """The worker stopped because too many tasks still run whose jobs were ended; `tasks`: their names."""

    def __init__(self, tasks: Sequence[str], allowed: int) -> None:
        self.tasks = tuple(tasks)
        self.allowed = allowed
        number = f"{len(tasks)} task{'' if len(tasks) == 1 else 's'}"
        super().__init__(
            f"{number} did not end when asked to and still run{'s' if len(tasks) == 1 else ''} "
            f"(max_leaked_tasks is {allowed}): {', '.join(self.tasks)}"
        )


class WorkerNotFoundError(GraphileWorkerError):
    """No running worker of this package has this id; other runtimes do not listen to requests."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        super().__init__(
            f"no running Python worker has the id {worker_id!r}; graphile-worker workers lists them. Workers "
            "of other runtimes, and those with recovery switched off, do not take requests"
        )


class WorkerRequestError(GraphileWorkerError):
    """A worker has not done what it was asked: it does not answer, or it is stopping."""

    def __init__(self, worker_id: str, reason: str) -> None:
        self.worker_id = worker_id
        super().__init__(f"worker {worker_id} {reason}")


class StackUnavailableError(GraphileWorkerError):
    """The stack of a job is unavailable: it does not run, or its worker does not answer."""

    def __init__(self, job_id: int, reason: str) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id}: {reason}")


class EmbeddedPostgresError(GraphileWorkerError):
    """The embedded server cannot be found, started or stopped."""
