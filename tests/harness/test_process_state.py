"""What a test imports from its own folder is not found by the next one."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from support.modules import modules_unloaded
from support.process_state import restored_process

NAME = "only_in_the_folder_of_a_test"
FORMS = {"a module": f"{NAME}.py", "a package": f"{NAME}/__init__.py", "a folder": f"{NAME}/inside.py"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "restored", [lambda folder: restored_process(), modules_unloaded], ids=["process", "modules"]
)
def test_nothing_stays_imported(
    tmp_path: Path, restored: Callable[[Path], AbstractContextManager[None]], form: str
) -> None:
    file = tmp_path / FORMS[form]
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    with restored(tmp_path):
        sys.path.insert(0, str(tmp_path))
        importlib.invalidate_caches()
        importlib.import_module(NAME)
    assert NAME not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAME)


def test_what_is_installed_stays_imported_if_the_checkout_is_in_a_temporary_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some modules of libraries cannot be imported twice."""
    monkeypatch.setattr("support.process_state.TEMPORARY", (os.sep,))
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with restored_process():
        module = importlib.import_module("colorsys")
    assert sys.modules.get("colorsys") is module
