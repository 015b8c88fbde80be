"""What older servers cannot do. The README lists the supported versions; 12 is the oldest."""

from __future__ import annotations

from .connection import Connection


def sorts_within_groups(connection: Connection) -> bool:
    """Whether rows in index order can be sorted by one more column without reading beyond a limit.

    PostgreSQL 12 has no incremental sort: it would read and sort all rows. Statements for such lists have
    a variant for it. A server of unknown version is taken for a newer one.
    """
    version = getattr(connection.get_settings(), "server_version", "")
    return not version.startswith("12")
