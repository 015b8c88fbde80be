"""Every error this package raises on purpose.

    GraphileWorkerError
    ├── ConfigError                  an option, file or argument is wrong
    │   ├── ConnectionConfigError    no way, or two ways, to reach a database were given
    │   │   └── NoDatabaseError      no way was given
    │   ├── CrontabError             a crontab line or item cannot be read
    │   └── TaskLoadError            a task file cannot be used
    ├── InvalidArgumentError         a value given to add or manage jobs is out of bounds
    ├── DatabaseError                the database said no
    │   ├── ConnectionFailedError    server unreachable, password wrong, database missing
    │   ├── SchemaMissingError       the Graphile Worker schema is not installed
    │   ├── PermissionDeniedError    the role may not do this
    │   ├── JobNotAddedError         a keyed add came back empty although it was tried again
    │   └── MigrationError           the schema could not be installed or upgraded
    │       ├── SchemaTooOldError    older than what this package upgrades
    │       └── SchemaTooNewError    changed by a newer worker in a way we do not understand
    ├── JobError                     one job cannot go on
    │   ├── UnknownTaskError         no task has the job's identifier
    │   ├── PayloadError             the payload does not fit the task's annotation
    │   ├── BatchFailureError        some items of a batch job failed
    │   ├── JobInterruptedError      the worker had to stop before the task ended
    │   ├── ExecutableFailedError    an executable task ended with a bad status
    │   └── ExtensionMissingError    a task asked for application state that was not given
    ├── JobRefusedError              an interceptor refused to add the job
    ├── PluginError                  a plugin failed to start
    ├── WorkerStoppedError           the worker died of an error, or was stopped by force
    │   └── TasksLeftBehindError     it stopped, but tasks would not end even when cancelled
    └── EmbeddedPostgresError        the embedded server cannot be found, started or stopped

Each error names the thing and the way out in its message and carries the parts as fields.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .error_text import summarize, summarize_members


class GraphileWorkerError(Exception):
    """Root of all errors raised by this package."""


class ConfigError(GraphileWorkerError):
    """An option, file or argument is wrong."""


class ConnectionConfigError(ConfigError):
    """No way, or two ways at once, to reach a database were given."""


class NoDatabaseError(ConnectionConfigError):
    """No way to reach a database was given."""


class CrontabError(ConfigError):
    """A crontab line or item cannot be read; `problems` holds every fault that was found, with its place."""

    def __init__(self, message: str, *, problems: Sequence[CrontabProblem] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__(message)


class CrontabProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One fault in a crontab: where it is, what was found, and what is allowed there.

    `line` and `column` count from 1 and are None for items that were written in code.
    """

    source: str
    message: str
    line: int | None = None
    column: int | None = None
    text: str | None = None

    @property
    def place(self) -> str:
        """`source:line:column`, as far as it is known."""
        parts = (self.source, self.line, self.column)
        return ":".join(str(part) for part in parts if part is not None)

    def __str__(self) -> str:
        lines = [f"{self.place}: {self.message}"]
        if self.text is not None:
            lines.append(f"    {self.text}")
            if self.column is not None:
                # A tab keeps its own width in front of the mark, so that the mark stands below its character.
                before = self.text[: self.column - 1]
                lines.append("    " + "".join("\t" if sign == "\t" else " " for sign in before) + "^")
        return "\n".join(lines)


class TaskLoadError(ConfigError):
    """A task file cannot be used; `path` and `line` say where."""

    def __init__(self, message: str, *, path: str | None = None, line: int | None = None) -> None:
        self.path = path
        self.line = line
        where = "" if path is None else f"{path}:{line}: " if line is not None else f"{path}: "
        super().__init__(f"{where}{message}")


class InvalidArgumentError(GraphileWorkerError, ValueError):
    """A value given to add or manage jobs is out of bounds; `argument` names it."""

    def __init__(self, argument: str, message: str) -> None:
        self.argument = argument
        super().__init__(f"{argument}: {message}")


class DatabaseError(GraphileWorkerError):
    """The database said no; `sqlstate` is its code where it gave one."""

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        self.sqlstate = sqlstate
        super().__init__(message)


class ConnectionFailedError(DatabaseError):
    """The server cannot be reached, refuses the password, or lacks the database."""


class SchemaMissingError(DatabaseError):
    """The Graphile Worker schema is not installed in this database."""


class PermissionDeniedError(DatabaseError):
    """The role that is connected may not do this."""


class JobNotAddedError(DatabaseError):
    """A keyed add came back empty although it was tried again."""


class MigrationError(DatabaseError):
    """The schema could not be installed or upgraded."""


class SchemaTooOldError(MigrationError):
    """The schema is older than what this package can upgrade."""


class SchemaTooNewError(MigrationError):
    """A newer worker changed the schema in a way this package does not understand."""


class JobError(GraphileWorkerError):
    """One job cannot go on; the worker itself is well."""


class UnknownTaskError(JobError):
    """No task is registered under the job's identifier."""


class PayloadError(JobError):
    """The payload does not fit the task's annotation; the message says which field."""


class BatchFailureError(JobError):
    """Some items of a batch job failed; `errors` holds one exception per failed item."""

    def __init__(self, errors: Sequence[BaseException]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(["Batch failures:", *summarize_members(self.errors)]))


class JobInterruptedError(JobError):
    """The worker had to stop before the task ended."""


class ExecutableFailedError(JobError):
    """An executable task ended with a bad status or by a signal."""


class ExtensionMissingError(JobError, LookupError):
    """A task asked for application state that was not given at start; `kind` is the type asked for."""

    def __init__(self, kind: type, given: Sequence[str] = (), *, ambiguous: bool = False) -> None:
        self.kind = kind
        name, known = kind.__name__, ", ".join(given) or "none"
        if ambiguous:
            message = f"several extensions fit {name}; ask for one of: {known}"
        else:
            given_at_start = f"start the worker with extensions=[{name}(...)] (given: {known})"
            message = f"no extension of type {name}; {given_at_start}"
        super().__init__(message)


class JobRefusedError(GraphileWorkerError):
    """An interceptor refused to add the job."""


class PluginError(GraphileWorkerError):
    """A plugin failed to start, so the worker did not start; `plugin` is the name of its class."""

    def __init__(self, plugin: str, error: BaseException) -> None:
        self.plugin = plugin
        super().__init__(f"plugin {plugin} failed to start: {summarize(error)}")


class WorkerStoppedError(GraphileWorkerError):
    """The worker died of an error, or was stopped by force."""


class TasksLeftBehindError(WorkerStoppedError):
    """The worker stopped and gave every job back, but these tasks would not end; `jobs` holds name and id."""

    def __init__(self, message: str, jobs: Sequence[tuple[str, int]]) -> None:
        self.jobs = tuple(jobs)
        names = ", ".join(f"{name} (job {job_id})" for name, job_id in self.jobs)
        super().__init__(
            f"{message}; these tasks did not end even when cancelled, they are left behind and their jobs "
            f"given back: {names}"
        )


class EmbeddedPostgresError(GraphileWorkerError):
    """The embedded server cannot be found, started or stopped."""
