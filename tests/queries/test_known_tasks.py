"""Which names of tasks are doubted, and which are proven."""

from __future__ import annotations

import pytest

from graphile_worker.database.statements.inspection import KnownTasks

LOCAL = frozenset({"local"})


def names(*given: str) -> frozenset[str]:
    return frozenset(given)


KNOWN = KnownTasks(
    running=names("charge"),
    registered=names("charge", "refund"),
    attempted=names("of_node"),
    recorded=names("charge", "refund", "of_node", "also_of_node", "chrage", "waits"),
    late=names("chrage", "waits"),
)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("charge", None),
        ("refund", None),
        ("of_node", None),
        ("also_of_node", None),
        ("local", None),
        ("chrage", "no worker has registered; did you mean 'charge'?"),
        ("refnd", "no worker has registered; did you mean 'refund'?"),
        ("lokal", "no worker has registered; did you mean 'local'?"),
        ("waits", "no worker has registered"),
        ("unheard", "no worker has registered"),
    ],
)
def test_what_is_said_about_a_name(name: str, said: str | None) -> None:
    doubt = KNOWN.doubt(name, LOCAL)
    assert (None if doubt is None else doubt.reason + doubt.question) == said


def test_a_registered_name_that_resembles_a_running_one() -> None:
    known = KnownTasks(running=names("charge"), registered=names("charge", "charges"))
    doubt = known.doubt("charges")
    assert doubt is not None
    assert (doubt.reason, doubt.meant) == ("no running worker has", ["charge"])


def test_before_the_first_worker_nothing_is_doubted() -> None:
    assert KnownTasks(recorded=names("helo")).doubt("hello") is None
    assert KnownTasks(recorded=names("helo")).doubt("hello", LOCAL) is not None


def test_what_proves_a_name() -> None:
    proven = {name for name in KNOWN.recorded | {"local", "unheard"} if KNOWN.is_proven(name, LOCAL)}
    assert proven == {"charge", "refund", "of_node", "local"}
    of_node = KnownTasks(attempted=names("a"), recorded=names("a", "b"))
    assert [of_node.is_proven(name) for name in "abc"] == [True, True, False]
