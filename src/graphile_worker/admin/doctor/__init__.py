"""Findings of the doctor, maintenance, and what the dashboard runs on."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

Remedy = Literal["sweep", "cleanup", "migrate"]


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    check: str
    severity: Literal["error", "warning", "info", "ok"]
    summary: str
    meaning: str = ""
    advice: str = ""
    remedy: Remedy | None = None
    """What of `/maintenance` may help."""
    path: str | None = None
    """A page of the dashboard that shows more."""


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """All findings, worst first."""

    findings: list[FindingView]
    errors: int
    warnings: int
    examined_at: datetime


class MaintenanceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Maintenance; a dry run only says what would be done."""

    dry_run: bool = False


class MaintenanceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, or would be."""

    what: Remedy
    is_dry_run: bool
    changed: bool
    """Whether anything was done, or would be."""
    lines: list[str]
    """In words."""


class OwnTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the schema."""

    name: str
    bytes: int | None
    """With indexes. This and `rows` are of the last vacuum or analyze; None if there has been none."""
    rows: int | None


class OwnObject(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the Python-only objects in the schema."""

    number: int
    name: str
    is_applied: bool


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What the dashboard runs on, and what its user may do."""

    version: str
    python: str
    server: str
    database: str
    schema: str
    role: str
    revision: int | None
    supported_revision: int
    objects: list[OwnObject]
    tables: list[OwnTable]
    settings: dict[str, str]
    user: str
    permissions: list[str]
    is_read_only: bool
