"""The public names of the packages that import them on first use."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ["graphile_worker", "graphile_worker.executors", "graphile_worker.testing"]


def _imported_for_type_checkers(package: str) -> dict[str, str]:
    """Names and modules of the imports below TYPE_CHECKING."""
    source = Path(importlib.import_module(package).__file__ or "").read_text()
    block = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    found = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            assert alias.asname == alias.name, "type checkers export `X as X` only"
            found[alias.name] = f"{package}.{statement.module}"
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_and_programs_find_the_same_names(package: str) -> None:
    module = importlib.import_module(package)
    static = _imported_for_type_checkers(package)
    assert set(module.__all__) - {"__version__"} == set(static)
    for name, home in static.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name), name


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_listed_and_others_are_refused(package: str) -> None:
    module = importlib.import_module(package)
    assert dir(module) == sorted(module.__all__)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'quick_add_job'"):
        module.quick_add_job  # noqa: B018


def test_a_star_import_brings_every_name() -> None:
    namespace: dict[str, object] = {}
    exec("from graphile_worker import *", namespace)
    assert {"run", "task", "WorkerUtils", "LeaveLocked", "__version__"} <= set(namespace)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_alone_imports_next_to_nothing(package: str) -> None:
    code = f"import sys, {package}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    expected = {"graphile_worker", "graphile_worker.values.imports", "graphile_worker.values", package}
    assert {name for name in done.stdout.split() if name.startswith("graphile_worker")} == expected


def test_types_for_type_checkers_are_not_imported_at_run_time() -> None:
    code = "import sys, graphile_worker as g; g.run, g.Runner, g.make_worker_utils; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    imported = set(done.stdout.split())
    assert "graphile_worker.runner.runner" in imported, done.stderr
    assert not {name for name in imported if name.endswith((".arguments", ".option_values"))}
