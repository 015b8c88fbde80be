"""Unique: at most one job of a task with the same arguments, by a job key that is derived from them.

The key is `u:` and a digest of the task identifier and the arguments. The unique index on job keys makes it
hold for jobs that any runtime added.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Literal, get_args

import msgspec

from ..errors import InvalidArgumentError
from .payload import NAME as TRACE
from .payload import encode, without_trace

KEY_PREFIX = "u:"
DIGEST_CHARACTERS = 40
MARKS = ("_cron", TRACE)
"""Members that cron and tracing add to payloads; they say nothing about the arguments."""

While = Literal["waiting", "waiting or running"]
WHILES: tuple[str, ...] = get_args(While)


class Unique(msgspec.Struct, frozen=True, kw_only=True):
    """At most one job with the same arguments: `@task(unique=Unique(fields=("user_id",)))`.

    While such a job exists, an add returns it and adds nothing. A job that has failed permanently does not
    count; the next add takes its place.
    """

    fields: Sequence[str] = ()
    """The members of the payload that count, by their names in JSON; the whole payload without any."""
    while_: Literal["waiting", "waiting or running"] = "waiting or running"
    """Whether a running job counts too. If not, it has no further attempt once another job is added."""

    def __post_init__(self) -> None:
        fields: Any = self.fields
        if isinstance(fields, str) or not isinstance(fields, Sequence):
            raise InvalidArgumentError("unique.fields", f"expected a list of names, got {fields!r}")
        for name in fields:
            if not isinstance(name, str):
                raise InvalidArgumentError("unique.fields", f"every name must be text, got {name!r}")
        if self.while_ not in WHILES:
            raise InvalidArgumentError(
                "unique.while_", f"expected one of {', '.join(map(repr, WHILES))}; got {self.while_!r}"
            )
        msgspec.structs.force_setattr(self, "fields", tuple(fields))

    def job_key(self, task_identifier: str, payload: object) -> str:
        """The key of a job with this payload."""
        arguments = msgspec.json.decode(without_trace(encode(payload)))
        if not self.fields and isinstance(arguments, dict):
            arguments = {name: value for name, value in arguments.items() if name not in MARKS}
        elif self.fields:
            arguments = [[name, self._member(arguments, name)] for name in sorted(set(self.fields))]
        text = msgspec.json.encode([task_identifier, arguments], order="sorted")
        return KEY_PREFIX + sha256(text).hexdigest()[:DIGEST_CHARACTERS]

    def _member(self, arguments: Any, name: str) -> Any:
        if not isinstance(arguments, dict) or name not in arguments:
            raise InvalidArgumentError(
                "unique.fields", f"the payload has no member {name!r}, which makes the job unique"
            )
        return arguments[name]


def check_unique(value: object) -> None:
    """Reject anything but a Unique."""
    if not isinstance(value, Unique):
        raise InvalidArgumentError(
            "unique", f'expected Unique, as in unique=Unique(fields=("user_id",)), got {value!r}'
        )
