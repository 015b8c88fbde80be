"""A program that compiles a part of these files, or of the files in these folders: `compiler.py 0/2 PATH …`.

Test files are compiled as pytest would, with their assertions rewritten. Of the others, those constants are
stored that Hypothesis would look for in each process. Neither has an interface for this; where their
internals differ, the processes do it themselves.
"""

from __future__ import annotations

import compileall
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from _pytest.assertion import rewrite
from hypothesis.internal import constants_ast


def main(part: str, *paths: str) -> None:
    number, count = map(int, part.split("/"))
    for file in sorted(_files_of(map(Path, paths)))[number::count]:
        with suppress(Exception):
            _compile(file)


def _files_of(paths: Iterator[Path]) -> Iterator[Path]:
    for path in paths:
        yield from path.rglob("*.py") if path.is_dir() else [path]


def _compile(file: Path) -> None:
    if file.name.startswith("test_") or file.name == "conftest.py":
        _rewrite(file)
        return
    compileall.compile_file(file, quiet=2)
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    if constants_ast.is_local_module_file(str(file)):
        constants_ast.constants_from_module(module)


def _rewrite(file: Path) -> None:
    internals: Any = rewrite
    folder = internals.get_cache_dir(file)
    compiled = folder / (file.name[:-3] + internals.PYC_TAIL)
    if internals._read_pyc(file, compiled) is None:
        folder.mkdir(parents=True, exist_ok=True)
        digest, code = internals._rewrite_test(file, None)
        internals._write_pyc(SimpleNamespace(trace=lambda line: None), code, digest, compiled)


if __name__ == "__main__":
    main(*sys.argv[1:])
