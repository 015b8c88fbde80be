"""How tests are shared among processes; see tests/support/scheduling.py."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from support.scheduling import PART, Units

FILE, SHARED, MANY = "tests/test_one.py", "tests/shared/test_two.py", 300


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tests" / "shared").mkdir(parents=True)
    (tmp_path / FILE).write_text('@pytest.fixture(scope="session")\ndef server(): ...\n')
    (tmp_path / SHARED).write_text("")
    (tmp_path / "tests" / "shared" / "conftest.py").write_text('@pytest.fixture(scope="module")\n')
    return tmp_path


def cases_of(file: str) -> list[str]:
    return [f"{file}::test_{n}" for n in range(MANY)]


def units_in_order(units: Units, tests: list[str]) -> list[str]:
    return list(dict.fromkeys(units.of(test) for test in sorted(tests, key=units.place)))


def test_a_file_is_split_into_parts_unless_its_tests_share_a_fixture(root: Path) -> None:
    units = Units([*cases_of(FILE), *cases_of(SHARED)], {}, root)
    assert {units.of(test) for test in cases_of(FILE)} == {f"{FILE}#{part}" for part in range(3)}
    assert {units.of(test) for test in cases_of(SHARED)} == {SHARED}


def test_a_test_has_the_same_unit_in_any_order(root: Path) -> None:
    tests = cases_of(FILE)
    one, other = Units(tests, {}, root), Units(tests[::-1], {}, root)
    assert [one.of(test) for test in tests] == [other.of(test) for test in tests]


def test_what_took_longest_comes_first_and_alone(root: Path) -> None:
    slow, slower = f"{FILE}::test_7", f"{FILE}::test_8"
    tests = [*cases_of(FILE), *cases_of(SHARED)]
    units = Units(tests, {slow: PART * 4, slower: PART * 9}, root)
    first, second, third, *_ = units_in_order(units, tests)
    assert (first, second, third) == (slower, slow, SHARED)


def test_the_tests_of_a_unit_stay_together(root: Path) -> None:
    tests = [*cases_of(FILE), *cases_of(SHARED)]
    units = Units(tests, {}, root)
    order = [units.of(test) for test in sorted(tests, key=units.place)]
    changes = sum(before != after for before, after in pairwise(order))
    assert changes == len(set(order)) - 1
