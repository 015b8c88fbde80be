"""The problem that an error means, if a person can act on it."""

from __future__ import annotations

from ...database.connections import sqlstates
from ...database.connections.errors import server_message, sqlstate_of, translated_error
from ...errors import (
    ConfigError,
    GraphileWorkerError,
    InvalidArgumentError,
    JobRefusedError,
    SchemaMissingError,
)
from ..answers import Problem
from ..database import is_outage

AGAIN_AFTER = 5
"""Seconds after which a page that failed is worth another request."""

_REFUSED = ("28", "53", sqlstates.INVALID_CATALOG_NAME)
"""SQLSTATEs: no entry, no resources, no such database."""
_MISSING = (
    sqlstates.INVALID_SCHEMA_NAME,
    sqlstates.UNDEFINED_TABLE,
    sqlstates.UNDEFINED_FUNCTION,
    sqlstates.UNDEFINED_COLUMN,
)
_CONFLICTS = (sqlstates.SERIALIZATION_FAILURE, sqlstates.DEADLOCK_DETECTED)


def problem_of(error: Exception) -> Problem | None:
    """The problem that an error means; None for a fault of our own."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InvalidArgumentError):
        return Problem(400, "A value is not valid", str(error))
    if isinstance(error, JobRefusedError):
        return Problem(409, "The job was refused", str(error))
    if isinstance(error, SchemaMissingError):
        return _missing(str(error))
    if is_outage(error):
        return _down(error)
    state = sqlstate_of(error)
    if state is None:
        return _without_state(error)
    return _of_state(state, error)


def _of_state(state: str, error: Exception) -> Problem | None:
    if state == sqlstates.QUERY_CANCELED:
        return Problem(
            503, "The database took too long",
            "The statement was stopped, and nothing was changed. Narrow the filter, or try again when the "
            "database is less busy.", retry_after=AGAIN_AFTER,
        )  # fmt: skip
    if state == sqlstates.LOCK_NOT_AVAILABLE:
        return Problem(
            409, "Busy: a worker or another transaction has locked its row",
            "Nothing was changed. Try again in a moment.", retry_after=1,
        )  # fmt: skip
    if state in _CONFLICTS:
        return Problem(409, "Another transaction changed the same rows", "Nothing was changed. Try again.")
    if state == sqlstates.INSUFFICIENT_PRIVILEGE:
        return Problem(
            403, "The database role may not do this",
            f"PostgreSQL says: {server_message(error)}. The dashboard connects with a role that lacks a "
            "privilege; the documentation lists the grants.",
        )  # fmt: skip
    if state == sqlstates.READ_ONLY_SQL_TRANSACTION:
        return Problem(403, "The database is read-only here", "PostgreSQL refused the change.")
    if state in _MISSING:
        return _missing(server_message(error))
    if state.startswith(_REFUSED):
        return _down(error)
    if state.startswith("22"):
        return Problem(400, "A value is not valid", f"PostgreSQL says: {server_message(error)}")
    return None


def _without_state(error: Exception) -> Problem | None:
    if isinstance(error, ValueError) and type(error).__module__.startswith("asyncpg"):
        return Problem(400, "A value is not valid", "A number is too large, or a text cannot be stored.")
    if isinstance(error, GraphileWorkerError) and not isinstance(error, ConfigError):
        return Problem(409, "This did not work", str(error))
    return _down(error) if translated_error(error) is not None else None


def _down(error: Exception) -> Problem:
    state = sqlstate_of(error)
    reason = f" ({state})" if state else ""
    return Problem(
        503, "The database does not answer",
        f"The dashboard tries again with each request{reason}.",
        retry_after=AGAIN_AFTER,
    )  # fmt: skip


def _missing(said: str) -> Problem:
    if "graphile-worker migrate" in said:
        return Problem(409, "A part of the schema is not installed", said)
    advice = f"{said}. To create it, run as the owner of the schema: graphile-worker migrate"
    if "_private_py_" in said:
        return Problem(409, "A part of the schema is not installed", advice)
    return Problem(503, "The schema is not installed, or not completely", advice)
