"""An embedded PostgreSQL server: see `EmbeddedPostgres`.

The programs come from the extra `graphile-worker[embedded]` or from a PostgreSQL installed on the machine.
"""

from __future__ import annotations

from .binaries import Binaries, find_binaries
from .cluster import EmbeddedPostgres

__all__ = ["Binaries", "EmbeddedPostgres", "find_binaries"]
