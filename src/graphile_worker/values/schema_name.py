"""The name of the database schema: checked once, quoted in SQL."""

from __future__ import annotations

import msgspec

from ..errors import ConfigError

DEFAULT_SCHEMA = "graphile_worker"
MAX_IDENTIFIER_BYTES = 63  # PostgreSQL truncates longer names silently


class SchemaName(msgspec.Struct, frozen=True):
    """A schema name as the user wrote it; `quoted` is its form in SQL."""

    name: str = DEFAULT_SCHEMA

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("schema: the name is empty")
        if "\0" in self.name:
            raise ConfigError("schema: the name contains a NUL byte")
        size = len(self.name.encode())
        if size > MAX_IDENTIFIER_BYTES:
            raise ConfigError(f"schema: the name has {size} bytes, PostgreSQL allows {MAX_IDENTIFIER_BYTES}")

    @property
    def quoted(self) -> str:
        """The name as an SQL identifier."""
        return '"' + self.name.replace('"', '""') + '"'

    def __str__(self) -> str:
        return self.name
