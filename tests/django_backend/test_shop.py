"""The shop of the examples on the Django that is tested: its own tests, and strict type checkers.

Type checkers look at a copy, as at a project of a user. They need the types of Django, which are in the
package django-stubs; `make integrations` installs it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import graphile_worker
from django_backend.test_suite import PATIENCE, PYTHON, has, manage_in
from docs.blocks import ROOT
from support.command_line import clean_environment

SHOP = ROOT / "examples" / "django_shop"
SOURCE = Path(graphile_worker.__file__).parents[1]
pytestmark = pytest.mark.timeout(2 * PATIENCE)


def test_its_tests(server_url: str) -> None:
    ran = manage_in(SHOP, server_url, "test", "--noinput")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Ran 6 tests" in ran.stderr


def test_its_migrations_are_complete(database_url: str) -> None:
    ran = manage_in(SHOP, database_url, "makemigrations", "--check", "--dry-run")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    if not has("mypy_django_plugin"):
        pytest.skip("django-stubs is not installed")
    folder = tmp_path / "django_shop"
    shutil.copytree(SHOP, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    text = "".join(path.read_text() for path in folder.rglob("*.py"))
    assert "type: ignore" not in text
    assert "cast" not in text
    return folder


def test_mypy(shop: Path) -> None:
    if not has("mypy"):
        pytest.skip("mypy is not installed")
    (shop / "mypy.ini").write_text("[mypy]\nstrict = true\nfollow_imports = silent\n")
    checked = run(shop, "mypy", ".", MYPYPATH=str(SOURCE))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_pyright(shop: Path) -> None:
    if not has("pyright"):
        pytest.skip("pyright is not installed")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(SOURCE)], "include": ["."]}
    (shop / "pyrightconfig.json").write_text(json.dumps(settings))
    checked = run(shop, "pyright", "--pythonpath", PYTHON)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_types_of_tasks_are_known(shop: Path) -> None:
    if not has("mypy"):
        pytest.skip("mypy is not installed")
    (shop / "mypy.ini").write_text("[mypy]\nstrict = true\nfollow_imports = silent\n")
    (shop / "wrong.py").write_text(
        "from orders.tasks import charge, send_receipt\n"
        "reveal_type(charge.enqueue(1).return_value)\n"
        "reveal_type(send_receipt.get_result('1').return_value)\n"
        "charge.enqueue('one')\n"
    )
    said = run(shop, "mypy", ".", MYPYPATH=str(SOURCE)).stdout
    assert 'wrong.py:2: note: Revealed type is "str"' in said
    assert 'wrong.py:3: note: Revealed type is "None"' in said
    assert 'wrong.py:4: error: Argument 1 to "enqueue"' in said
    assert 'incompatible type "str"; expected "int"' in said


def run(folder: Path, program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, "-m", program, *arguments],
        cwd=folder,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
