"""Settings, from the environment. The web process and the worker read the same variables."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


def _variable(name: str) -> str:
    return field(default_factory=lambda: os.environ[name])


@dataclass(frozen=True)
class Settings:
    database_url: str = _variable("DATABASE_URL")
    mail_url: str = _variable("MAIL_URL")
    bank_url: str = _variable("BANK_URL")
