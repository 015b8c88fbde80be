"""The arguments of the SQL functions that add jobs, and why some of them cannot be stored."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from fuzz.desk import Desk
from fuzz.values import ANY_TEXT, JSON_TEXTS, SMALL_NUMBERS, is_json, names

NOT_TEXT = "22021"  # a NUL byte
NOT_JSON = "22P02"
NOT_JSONB = {"22P05", "22P02", "22003"}  # \u0000, half a surrogate pair, a number beyond all bounds
NULL, CHECK, RANGE, MODE, TWICE = "23502", "23514", "22003", "GWBKM", "21000"
NULL_FLAG = {"22023", "22004", "22030"}
BAD_TIME = {"22007", "22008", "22009", "22023"}  # not a time, out of range, an unknown zone

TIMES = st.one_of(
    st.none(),
    st.sampled_from(
        [
            "infinity",
            "-infinity",
            "epoch",
            "now",
            "tomorrow",
            "294276-12-31Z",
            "294277-01-01Z",
            "4713-01-01 BC",
        ]
    ),
    st.datetimes().map(lambda moment: f"{moment.isoformat()}+05:30"),
    ANY_TEXT,
)


@dataclass(frozen=True)
class Spec:
    """The arguments of add_job, as texts where a cast may fail."""

    identifier: str | None = "task"
    payload: str | None = None
    queue_name: str | None = None
    run_at: str | None = None
    max_attempts: int | None = None
    job_key: str | None = None
    priority: int | None = None
    flags: list[str | None] | None = None

    def faults(self, *, is_good_time: bool) -> set[str]:
        """Why these values cannot be stored, whoever has the key."""
        texts = [
            self.identifier,
            self.payload,
            self.queue_name,
            self.run_at,
            self.job_key,
            *(self.flags or ()),
        ]
        if any("\0" in text for text in texts if text is not None):
            return {NOT_TEXT}
        found: set[str] = set() if is_good_time else set(BAD_TIME)
        if self.payload is not None and not is_json(self.payload):
            found.add(NOT_JSON)
        if self.identifier is None:
            found.add(NULL)
        elif len(self.identifier) > 128:
            found.add(CHECK)
        if self.queue_name is not None and len(self.queue_name) > 128:
            found.add(CHECK)
        if self.job_key is not None and not 0 < len(self.job_key) <= 512:
            found.add(CHECK)
        for number in (self.max_attempts, self.priority):
            if number is not None and not -32768 <= number <= 32767:
                found.add(RANGE)
        if self.max_attempts is not None and self.max_attempts < 1:
            found.add(CHECK)
        if self.flags is not None and None in self.flags:
            found |= NULL_FLAG
        return found

    @property
    def has_good_names(self) -> bool:
        """Whether task and queue can be created, whatever becomes of the job."""
        return (
            self.identifier is not None and len(self.identifier) <= 128 and len(self.queue_name or "") <= 128
        )

    @property
    def is_array(self) -> bool:
        return self.payload is not None and self.payload.lstrip(" \t\r\n").startswith("[")


def specs(keys: st.SearchStrategy[str | None]) -> st.SearchStrategy[Spec]:
    return st.builds(
        Spec,
        identifier=st.none() | names(128) | st.just("task"),
        payload=st.none() | JSON_TEXTS,
        queue_name=st.none() | names(128),
        run_at=TIMES,
        max_attempts=st.none() | SMALL_NUMBERS,
        job_key=keys,
        priority=st.none() | SMALL_NUMBERS,
        flags=st.none() | st.lists(st.none() | ANY_TEXT | st.just("flag"), max_size=3),
    )


async def is_good_time(desk: Desk, text: str | None) -> bool:
    """Ask the server, for it alone knows all the ways to write a time."""
    if text is None or "\0" in text:
        return True
    async with desk.undone() as connection:
        _, refusal = await desk.attempt(connection.execute("select $1::text::timestamptz", text))
    assert refusal in {None, *BAD_TIME}
    return refusal is None
