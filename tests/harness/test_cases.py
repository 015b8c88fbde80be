"""Loops over cases: every case is tried, and each that fails is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cases import Cases, looped


def test_every_case_is_tried_and_each_failure_is_named() -> None:
    tried: list[int] = []

    @looped(("number", "name"), [(1, "one"), (2, "two"), (3, "three"), (4, "four")])
    def check(number: int, name: str) -> None:
        tried.append(number)
        if number == 2:
            with pytest.raises(ValueError, match=name):
                pass
        assert number != 3

    with pytest.raises(ExceptionGroup, match="2 of 4 cases failed") as caught:
        check()
    assert tried == [1, 2, 3, 4]
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["in the case 2, 'two'"],
        ["in the case 3, 'three'"],
    ]


@looped("number", [1, 2])
async def test_cases_share_fixtures(tmp_path: Path, number: int) -> None:
    assert len(list(tmp_path.iterdir())) == number - 1
    (tmp_path / str(number)).touch()


def test_an_empty_table_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="there was no case"), Cases():
        pass
