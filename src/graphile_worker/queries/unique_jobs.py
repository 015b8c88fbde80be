"""Adding jobs that are unique by their arguments, through a Python-only function of the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import sqlstates
from ..db.connection import Row
from ..db.errors import sqlstate_of
from ..errors import JobNotAddedError
from ..job import ExistingJob, Job
from ..schema_name import SchemaName

COLUMNS = len(Job.__struct_fields__) - 1  # without the task identifier


def unique_job(row: Row | Sequence[Any], task_identifier: str) -> Job:
    """The job in a row that ends with whether it is new."""
    values = tuple(row)
    kind = Job if values[COLUMNS] else ExistingJob
    return kind(*values[:COLUMNS], task_identifier)  # type: ignore[call-arg]


def is_missing(error: Exception) -> bool:
    """Whether the database does not have the function."""
    return sqlstate_of(error) == sqlstates.UNDEFINED_FUNCTION


def missing_objects_error(schema: SchemaName) -> JobNotAddedError:
    """For an add that needs the function."""
    return JobNotAddedError(
        f"unique jobs need the Python-only objects in the schema {schema.quoted}; the owner of the schema "
        "can create them with: graphile-worker migrate"
    )
