"""The example shop, as an application of a user: type checkers find nothing in it, and nothing is hidden."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.type_checkers import Errors, mypy, pyright

pytestmark = pytest.mark.timeout(1200)  # type checkers may take minutes

SHOP = Path(__file__).parents[2] / "examples" / "shop"


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_the_shop_is_typed(checker: Callable[[Path, list[str]], Errors], tmp_path: Path) -> None:
    for part in ("shop", "tests"):
        shutil.copytree(SHOP / part, tmp_path / part)
    assert checker(tmp_path, ["shop", "tests"]) == {}


def test_the_shop_hides_nothing_from_type_checkers() -> None:
    for path in SHOP.rglob("*.py"):
        assert not re.search(r"type: ignore|pyright: ignore|\bcast\(", path.read_text()), path
