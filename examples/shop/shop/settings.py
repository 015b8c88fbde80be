"""Settings, from the environment. The web process and the worker read the same variables."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    database_url: str  # postgresql+asyncpg://…, as SQLAlchemy needs it; the worker accepts this form too
    mail_url: str
    bank_url: str


def read_settings() -> Settings:
    return Settings(
        database_url=_variable("DATABASE_URL"), mail_url=_variable("MAIL_URL"), bank_url=_variable("BANK_URL")
    )


def _variable(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise RuntimeError(f"the environment variable {name} is not set; `python -m shop` sets it") from None
