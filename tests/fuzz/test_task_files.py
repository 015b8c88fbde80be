"""Folders with arbitrary files in them: the tasks are loaded, or an error says which file cannot be used."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import event, example, given
from hypothesis import strategies as st

from fuzz.cases import fuzzed, tried
from graphile_worker.errors import TaskLoadError
from graphile_worker.tasks.loading.load import load_tasks
from graphile_worker.tasks.registry import TaskRegistry

SOURCES = [
    "def {name}(payload, helpers): pass",
    "async def {name}(payload): pass",
    "def {name}(): pass",
    "def {name}(a, b, c): pass",
    "def {name}(*, payload): pass",
    "def {name}(*args, **kwargs): pass",
    "def {name}(payload: 'Missing'): pass",
    "def {name}(payload: 1 + 1): pass",
    "def {name}(payload: print): pass",
    "def {name}(payload: 'a b c'): pass",
    "def {name}():\n    yield 1",
    "async def {name}():\n    yield 1",
    "class {name}: pass",
    "class {name}:\n    def __call__(self): pass\n{name} = {name}()",
    "{name} = 1",
    "{name} = print",
    "{name} = lambda payload: None",
    "import functools\n{name} = functools.partial(print, 1)",
    "from graphile_worker import task\n@task\ndef {name}(payload): pass",
    "from graphile_worker import task\n@task('other name')\ndef {name}(payload): pass",
    "from graphile_worker import task\n@task('')\ndef {name}(payload): pass",
    "from graphile_worker import task\n@task(priority='high')\ndef {name}(payload): pass",
    "from graphile_worker import task\n@task('shared')\ndef something(payload): pass",
    "from graphile_worker import task\n@task\n@task\ndef {name}(payload): pass",
    "raise ValueError('no')",
    "raise SystemExit(3)",
    "raise BaseException('no')",
    "raise GeneratorExit",
    "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "import nothing_of_this_name",
    "from . import nothing_of_this_name",
    "from .. import above",
    "from ... import beyond",
    "import sys\ndel sys.modules[__name__]",
    "import sys\nsys.modules[__name__] = None",
    "import sys\nsys.modules[__name__] = 1",
    "def __getattr__(name): raise RuntimeError(name)",
    "__all__ = 1",
    "__all__ = ['{name}', 2]",
    "__name__ = None",
    "__file__ = None",
    "globals().clear()",
    "def f(): return f()\nf()",
    "assert False",
    "warnings = 1; import warnings; warnings.warn('deprecated', DeprecationWarning)",
    "x = '\\d'",
    "def {name}(payload):\nreturn",
    "def {name}(payload",
    "\tdef {name}(): pass",
    "((((((((((" * 30,
    "# coding: nothing\ndef {name}(): pass",
    "# coding: rot13\nqrs {name}(): cnff",
    "\x00",
    "\ufeffdef {name}(): pass",
    "",
    "#!/bin/sh\nexit 0",
]
NAMES = st.one_of(
    st.sampled_from(
        ["hello.py", "say-hello.py", "class.py", "1st.py", "__init__.py", "_helper.py", "json.py"]
    ),
    st.sampled_from(
        ["hello", "hello.sh", "hello.test.py", "hello.PY", "hello.py.bak", "hello.pyc", "a b.py"]
    ),
    st.sampled_from(["x" * 128 + ".py", "x" * 129 + ".py", "x" * 200, "sub", "tasks.py", "a b.py", ".py"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=6),
    st.binary(min_size=1, max_size=5).map(os.fsdecode),
)
CONTENTS: st.SearchStrategy[bytes] = st.one_of(
    st.sampled_from(SOURCES).map(lambda source: source.encode()),
    st.lists(st.sampled_from(SOURCES), min_size=2, max_size=3).map(lambda some: "\n".join(some).encode()),
    st.binary(max_size=40),
    st.text("()[]{}:=,.@#'\"\\\n\t 01abdef\x00é", max_size=30).map(str.encode),
)


LINKS = {"dangling": "nowhere", "loop": "itself", "up": "..", "other": "hello.py"}


@dataclass(frozen=True)
class Entry:
    """Something in the folder."""

    name: str
    folder: str = ""
    content: bytes = b""
    kind: str = "file"
    mode: int = 0o644

    def make(self, root: Path) -> None:
        path = root / self.folder / self.name
        with suppress(OSError, ValueError):  # a name that this system does not allow
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):  # writing to a pipe would wait for ever
                return
            if self.kind == "folder":
                path.mkdir()
            elif self.kind == "fifo":
                os.mkfifo(path)
            elif self.kind in LINKS:
                path.symlink_to(LINKS[self.kind].replace("itself", path.name))
            else:
                path.write_bytes(self._source())
                path.chmod(self.mode)

    def _source(self) -> bytes:
        own_name = os.fsencode(self.name.partition(".")[0].replace("-", "_"))
        return self.content.replace(b"{name}", own_name)


ENTRIES = st.builds(
    Entry,
    name=NAMES,
    folder=st.sampled_from(["", "", "", "sub", "sub/deep", "hello", ".hidden", "_private", "a.b", "é"]),
    content=CONTENTS,
    kind=st.sampled_from(["file"] * 8 + ["folder", "fifo", "dangling", "loop", "up", "other"]),
    mode=st.sampled_from([0o644, 0o755, 0o000, 0o100]),
)


@contextmanager
def project(entries: list[Entry]) -> Iterator[Path]:
    """A tasks folder with these entries; what importing them changed is undone at the end."""
    modules, search, here = dict(sys.modules), list(sys.path), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="gw-fuzz-", ignore_cleanup_errors=True) as name:
        root = Path(name) / "tasks"
        root.mkdir()
        for entry in entries:
            entry.make(root)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the code in the files
                yield root
        finally:
            os.chdir(here)
            sys.path[:] = search
            for module in sys.modules.keys() - modules.keys():
                if str(module).split(".")[0] not in modules:
                    del sys.modules[module]
            sys.modules.update(modules)
            sys.path_importer_cache.clear()


def check_loaded(registry: TaskRegistry) -> None:
    assert registry
    for identifier, task in registry.items():
        assert 1 <= len(identifier) <= 128
        assert callable(task.function)
        assert task._takes in (0, 1, 2)


def attempt(source: Any, root: Path) -> None:
    """Load, or be told in words which file cannot be used; nothing else may happen."""
    tried["task files"] += 1
    foreign = ""
    try:
        registry = load_tasks(source)
    except TaskLoadError as error:
        event("refused")
        message = str(error)
    except BaseException as error:
        foreign = repr(error)
    else:
        event("loaded")
        check_loaded(registry)
        return
    assert not foreign  # raised here, for a place in a folder of random name could not be found again
    assert str(root) in message or str(source).partition(":")[0] in message


@fuzzed(0.8, short=100)
@example([Entry("hello.py", content=b"raise BaseException('no')")])
@example([Entry("hello.py", content=b"import sys\nsys.modules[__name__] = None")])
@example([Entry("hello.py", content=b"def __getattr__(name): raise RuntimeError(name)")])
@example([Entry("hello.py", content=SOURCES[28].encode())])
@example([Entry("hello.py", content=SOURCES[0].encode()), Entry("circle.py", kind="loop")])
@example([Entry("x" * 200, content=b"#!/bin/sh", mode=0o755)])
@example([Entry("x" * 129 + ".py", content=b"def {name}(): pass")])
@given(st.lists(ENTRIES, max_size=4))
def test_a_folder_of_anything_gives_its_tasks_or_an_error_that_says_why_not(
    entries: list[Entry],
) -> None:
    with project(entries) as root:
        attempt(root, root)


@fuzzed(0.3, short=30)
@example(b"__all__ = 1", "jobs.py")
@example(b"globals().clear()\nraise type('Odd', (Exception,), {})()", "jobs.py")
@example(b"import functools\nwork = functools.partial(print, 1)", "jobs.py:work")
@given(
    CONTENTS,
    st.sampled_from(
        ["jobs.py", "jobs.py:", "jobs.py:work", "jobs.py:work.more", "jobs", "jobs:work", ":", "a:b:c"]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
def test_one_file_or_module_gives_its_tasks_or_an_error_that_says_why_not(
    content: bytes, source: str
) -> None:
    with project([Entry("jobs.py", content=content.replace(b"{name}", b"work"))]) as root:
        os.chdir(root)
        attempt(source, root)
