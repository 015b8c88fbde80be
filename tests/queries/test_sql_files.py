"""Statements by name: the loader of the `.sql` files, and the command that prints them. No server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphile_worker.database import sql
from graphile_worker.database.sql import FOLDER, INCLUDE, PLACEHOLDER, SCRIPTS, load, names
from graphile_worker.database.sql.__main__ import main
from graphile_worker.values.schema_name import SchemaName

SCHEMA = SchemaName("my schema")
PACKAGE = FOLDER.parents[1]
HEADING = re.compile(r"^-- (statement|part): (.+)$", re.MULTILINE)
LITERAL = re.compile(
    r"""(?<![\w.])load(?:_statement)?\(\s*"([^"{]+)"|if [^:\n]+ else "(\w+/\w+(?:@\w+)*)\""""
)


def sections() -> Iterator[tuple[Path, str, list[str]]]:
    """File, kind and titles of every section."""
    for file in sorted(FOLDER.rglob("*.sql")):
        for found in HEADING.finditer(file.read_text()):
            first, *others = found[2].split()
            yield file, found[1], [first, *(first + each if each[0] == "@" else each for each in others)]


def test_every_section_and_script_has_a_name() -> None:
    subjects = [
        (file.relative_to(FOLDER).parts[0].removesuffix(".sql"), titles)
        for file, kind, titles in sections()
        if kind == "statement"
    ]
    scripts = [file for prefix in SCRIPTS for file in (FOLDER / prefix).rglob("*.sql")]
    assert len(names()) == sum(len(titles) for _, titles in subjects) + len(scripts)
    assert set(names()) >= {f"{subject}/{title}" for subject, titles in subjects for title in titles}


@pytest.mark.parametrize("subject", sorted({name.partition("/")[0] for name in names()}))
def test_statements_are_complete(subject: str) -> None:
    for name in (name for name in names() if name.startswith(f"{subject}/")):
        text = load(name, SCHEMA)
        assert INCLUDE not in text, name
        assert PLACEHOLDER not in text, name
        assert name.startswith(SCRIPTS) or text[0].isalpha(), f"{name} begins with no word"


def test_a_variant_differs_from_its_statement() -> None:
    variants = [name for name in names() if "@" in name]
    texts = {name: load(name, SCHEMA) for name in names()}
    assert [name for name in variants if texts[name] == texts[name.partition("@")[0]]] == []


def test_every_part_is_included_in_its_subject_or_shared() -> None:
    files = {file: file.read_text() for file in FOLDER.rglob("*.sql")}
    unused = []
    for file, kind, titles in sections():
        subject = file.relative_to(FOLDER).parts[0]
        users = [
            text for other, text in files.items() if subject in ("parts", other.relative_to(FOLDER).parts[0])
        ]
        lines = {f"{INCLUDE}{title.partition('@')[0]}\n" for title in titles}
        if kind == "part" and not any(line in text for line in lines for text in users):
            unused.append(titles[0])
    assert unused == []


def test_python_names_statements_that_exist() -> None:
    texts = [path.read_text() for path in PACKAGE.rglob("*.py") if path.parent != FOLDER]
    found = {name for text in texts for pair in LITERAL.findall(text) for name in pair if "/" in name}
    assert len(found) > 250
    assert sorted(found - set(names())) == []


def test_there_are_not_many_files() -> None:
    assert len(list(FOLDER.rglob("*.sql"))) < 150


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in place of the package's."""
    monkeypatch.setattr(sql, "FOLDER", tmp_path)
    for cached in (sql.load, sql._sections):
        cached.cache_clear()
    (tmp_path / "parts").mkdir()
    yield tmp_path
    for cached in (sql.load, sql._sections):
        cached.cache_clear()


def test_a_subject_is_a_file_or_a_folder(folder: Path) -> None:
    (folder / "one.sql").write_text(
        "-- About one.\n\n-- statement: a\n-- Comment.\nselect 1\n\n-- statement: b\nselect 2"
    )
    (folder / "two").mkdir()
    (folder / "two" / "x.sql").write_text("-- statement: c\nselect\n:include shared\n")
    (folder / "two" / "y.sql").write_text("-- part: shared\n  3\n")
    assert names() == ["one/a", "one/b", "two/c"]
    assert [load(name) for name in names()] == ["select 1\n", "select 2\n", "select\n  3\n"]


def test_parts_of_the_subject_and_of_the_variant_come_first(folder: Path) -> None:
    (folder / "one.sql").write_text(
        "-- statement: a @wide @tall @tall@wide\n:include size\n:include name\n\n"
        "-- part: name\n'own'\n\n-- part: size@wide\n'wide'\n"
    )
    (folder / "parts" / "x.sql").write_text(
        "-- part: size\n'usual'\n\n-- part: size@tall\n'tall'\n\n-- part: name\n'shared'\n"
    )
    texts = {name: load(name).split() for name in names()}
    assert texts == {
        "one/a": ["'usual'", "'own'"],
        "one/a@tall": ["'tall'", "'own'"],
        "one/a@tall@wide": ["'wide'", "'own'"],
        "one/a@wide": ["'wide'", "'own'"],
    }


def test_parts_include_others_but_not_in_a_circle(folder: Path) -> None:
    (folder / "one.sql").write_text(
        "-- statement: a\n:include b\n\n-- part: b\n:include c\n\n-- part: c\nselect 1\n"
    )
    assert load("one/a") == "select 1\n"
    (folder / "one.sql").write_text((folder / "one.sql").read_text() + ":include b\n")
    for cached in (sql.load, sql._sections):
        cached.cache_clear()
    with pytest.raises(ValueError, match="one/a: more than 4 parts include each other"):
        load("one/a")


def test_two_sections_with_one_name_are_refused(folder: Path) -> None:
    (folder / "one.sql").write_text("-- statement: a\nselect 1\n\n-- statement: a\nselect 2\n")
    with pytest.raises(ValueError, match="two sections 'a'"):
        load("one/a")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("fetch/get_job", "there is no statement fetch/get_job: no line '-- statement: get_job' in .*fetch"),
        ("fetch/get_jobs@tall", "no line '-- statement: get_jobs@tall'"),
        ("nothing/at_all", "there is no statement nothing/at_all"),
        ("own_objects/9999", "there is no script own_objects/9999: no file .*9999.sql"),
        ("parts/nothing", "there is no part parts/nothing"),
    ],
)
def test_an_unknown_name_is_named(name: str, problem: str) -> None:
    with pytest.raises(LookupError, match=problem):
        load(name, SCHEMA)


def test_a_part_that_is_missing_is_named(folder: Path) -> None:
    (folder / "one.sql").write_text("-- statement: a\nselect\n:include size\n")
    with pytest.raises(
        LookupError, match=r"one/a includes 'size': there is no such part in .*one or in parts"
    ):
        load("one/a")


def test_a_statement_about_the_schema_needs_one() -> None:
    with pytest.raises(ValueError, match="fetch/get_jobs needs a schema"):
        load("fetch/get_jobs")


# -- the command -------------------------------------------------------------------------------------------


def test_the_command_lists_all_names(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert capsys.readouterr().out.splitlines() == names()


def test_the_command_prints_a_statement_as_it_is_sent() -> None:
    command = [
        sys.executable,
        "-m",
        "graphile_worker.database.sql",
        "fetch/get_jobs@wide",
        "--schema",
        "my schema",
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == load("fetch/get_jobs@wide", SCHEMA)
    assert '"my schema"._private_jobs' in found.stdout


def test_the_command_suggests_a_name() -> None:
    with pytest.raises(
        SystemExit, match=r"there is no statement fetch/get_jbos.*did you mean fetch/get_jobs or "
    ):
        main(["fetch/get_jbos"])


def test_the_command_says_what_is_wrong_with_a_schema() -> None:
    with pytest.raises(SystemExit, match="schema: the name is empty"):
        main(["fetch/get_jobs", "--schema", ""])
