"""The options `runbook` and `owner` of `@task`: what people need when its jobs fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidArgumentError

OPTIONS = ("runbook", "owner")
MAX_RUNBOOK_LENGTH = 2_000
MAX_OWNER_LENGTH = 200


def runbook_of(options: Mapping[str, Any]) -> str | None:
    """The address that `@task(runbook=…)` gives. Raises InvalidArgumentError."""
    runbook = _text(options, "runbook", MAX_RUNBOOK_LENGTH)
    if runbook is not None and not runbook.startswith(("https://", "http://")):
        raise InvalidArgumentError("runbook", f"expected an http or https address, got {runbook!r}")
    return runbook


def owner_of(options: Mapping[str, Any]) -> str | None:
    """The person or team that `@task(owner=…)` names. Raises InvalidArgumentError."""
    return _text(options, "owner", MAX_OWNER_LENGTH)


def _text(options: Mapping[str, Any], name: str, longest: int) -> str | None:
    value = options.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise InvalidArgumentError(name, f"expected a text, got {value!r}")
    if len(value) > longest:
        raise InvalidArgumentError(name, f"must have at most {longest:,} characters")
    return value
