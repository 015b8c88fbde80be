"""Whether an error means that the database does not answer, as opposed to a fault in the request."""

from __future__ import annotations

from ..database.connections.errors import is_dead_session, sqlstate_of
from ..errors import ConnectionFailedError

_CLASSES = ("08", "57P", "53300")
"""SQLSTATEs: lost connections, a server that stops or starts, too many connections."""


def is_outage(error: BaseException) -> bool:
    """True for lost and refused connections and for timeouts of the network."""
    if isinstance(error, OSError | ConnectionFailedError) or is_dead_session(error):
        return True  # TimeoutError is an OSError
    return (sqlstate_of(error) or "").startswith(_CLASSES)
