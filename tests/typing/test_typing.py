"""Type checkers accept correct programs, and refuse wrong payloads, signatures and options.

The files are checked as a user's are: outside of this repository, against the installed package. So is the
example shop, as an application of a user: type checkers find nothing in it, and nothing is hidden.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.type_checkers import Errors, mypy, pyright

pytestmark = pytest.mark.timeout(1200)  # type checkers may take minutes

HERE = Path(__file__).parent
SHOP = HERE.parents[1] / "examples" / "shop"

WRONG_PAYLOADS = {
    'await utils.add_job(send, {"to": "a@example.com"})': ("Letter", "dict[str, str]"),
    "await utils.add_job(send, 5)": ("Letter", "int|Literal[5]"),
    'await utils.add_job(count, {"a": "b"})': ("dict[str, int]", "dict[str, str]"),
    'await runner.add_job(send, {"to": "a"})': ("Letter", "dict[str, str]"),
    'await helpers.add_job(send, {"to": "a"})': ("Letter", "dict[str, str]"),
    'helpers.sync.add_job(send, "a@example.com")': ("Letter", "str|Literal['a@example.com']"),
    'utils.add_job(send, {"to": "a"})': ("Letter", "dict[str, str]"),
    'JobSpec(send, "a@example.com")': ("Letter", "str|Literal['a@example.com']"),
    'await utils.add_job(send, {"to": "a"}, connection=session)': ("Letter", "dict[str, str]"),
}
"""Lines of refused.py, with the type of payload that the task takes and the one that was given."""


@pytest.fixture(scope="module", params=[mypy, pyright])
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Errors:
    """What a checker says about all of them; it takes most of its time for what they import."""
    folder = tmp_path_factory.mktemp("checked")
    files = ["accepted.py", "results.py", "refused.py"]
    for file in files:
        shutil.copy(HERE / file, folder)
    for part in ("shop", "tests"):
        shutil.copytree(SHOP / part, folder / part)
    checker: Callable[[Path, list[str]], Errors] = request.param
    return checker(folder, [*files, "shop", "tests"])


def test_the_shop_is_typed(errors: Errors) -> None:
    assert {file: found for file, found in errors.items() if "/" in file} == {}


def test_the_shop_hides_nothing_from_type_checkers() -> None:
    for path in SHOP.rglob("*.py"):
        assert not re.search(r"type: ignore|pyright: ignore|\bcast\(", path.read_text()), path


def test_right_use_is_accepted(errors: Errors) -> None:
    assert errors.get("accepted.py", {}) == {}


def test_the_type_of_a_result_is_known(errors: Errors) -> None:
    assert errors.get("results.py", {}) == {}


def test_wrong_use_is_refused_line_by_line(errors: Errors) -> None:
    lines = (HERE / "refused.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    found = errors["refused.py"]
    assert {lines[number - 1].strip(): found[number] for number in sorted(found.keys() - wrong)} == {}
    assert [lines[number - 1].strip() for number in sorted(wrong - found.keys())] == []


def test_the_message_about_a_wrong_payload_names_both_types(errors: Errors) -> None:
    lines = (HERE / "refused.py").read_text().splitlines()
    for number, message in errors["refused.py"].items():
        wanted, given = WRONG_PAYLOADS.get(
            line := lines[number - 1].removesuffix("# wrong").strip(), ("", "")
        )
        assert wanted in message, f"{line}: {message}"
        assert any(each in message for each in given.split("|")), f"{line}: {message}"
    assert {line.removesuffix("# wrong").strip() for line in lines} >= WRONG_PAYLOADS.keys()
