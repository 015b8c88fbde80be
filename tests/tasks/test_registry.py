"""Collecting tasks under their identifiers."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.errors import ConfigError, TaskLoadError
from graphile_worker.tasks import task
from graphile_worker.tasks.registry import build_registry
from support.cases import looped


@task("mail/send")
async def send(payload: Any) -> str:
    return "sent"


def plain(payload: Any) -> str:
    return "plain"


def test_a_list_may_mix_tasks_and_functions() -> None:
    registry = build_registry([send, plain])
    assert list(registry) == ["mail/send", "plain"]
    assert registry["plain"]._invoke({}, None) == "plain"  # type: ignore[arg-type]


def test_a_mapping_gives_the_identifiers() -> None:
    registry = build_registry({"a": plain, "b": send, "c": lambda: 3})
    assert list(registry) == ["a", "b", "c"]
    assert [made.identifier for made in registry.values()] == ["a", "b", "c"]


def test_the_same_task_twice_is_no_clash() -> None:
    assert len(build_registry([send, send])) == 1


def test_two_tasks_with_one_identifier_are_refused_with_both_places() -> None:
    @task("plain")
    def other() -> None: ...

    with pytest.raises(TaskLoadError, match=r"the task 'plain' is defined twice: here and at ") as caught:
        build_registry([plain, other])
    message = str(caught.value)
    assert message.startswith(f"{__file__}:{other.line}: ")
    assert f"{__file__}:{plain.__code__.co_firstlineno};" in message


@pytest.mark.parametrize("empty", [[], {}, ()])
def test_no_tasks_at_all_are_refused(empty: Any) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        build_registry(empty)


@looped("wrong", ["send", 5, send, plain, None])
def test_what_is_no_list_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="task_list: expected"):
        build_registry(wrong)


def test_an_unusable_annotation_shows_when_the_registry_is_built() -> None:
    def broken(payload: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TaskLoadError, match="'Missing' cannot be resolved"):
        build_registry([broken])


def test_an_unknown_identifier_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        build_registry([send])["unknown"]
