"""Shell completion and help."""

from __future__ import annotations

import click

from cli.typing_commands import parse, words_of
from graphile_worker.cli.main import COMMANDS, graphile_worker
from support.cases import looped
from support.command_line import Call

EVERY_COMMAND = sorted({*COMMANDS, "crontab check", "crontab next"} - {"crontab"})


@looped("shell", ["bash", "zsh", "fish"])
def test_a_script_for_the_shell_is_printed(call: Call, shell: str) -> None:
    result = call(_GRAPHILE_WORKER_COMPLETE=f"{shell}_source").check()
    assert "graphile-worker" in result.out
    assert f"_GRAPHILE_WORKER_COMPLETE={shell}_complete" in result.out


@looped(
    ("words", "expected"),
    [
        ("graphile-worker d", {"demo", "dev", "doctor"}),
        ("graphile-worker dev --f", {"--fresh"}),
        ("graphile-worker --log-l", {"--log-level"}),
        ("graphile-worker --log-level w", {"warning"}),
        ("graphile-worker list --state f", {"failed"}),
    ],
)
def test_commands_flags_and_choices_are_completed(call: Call, words: str, expected: set[str]) -> None:
    result = call(
        _GRAPHILE_WORKER_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)
    ).check()
    assert {line.partition(",")[2] for line in result.out.split()} == expected


@looped("name", EVERY_COMMAND)
def test_help_has_examples_that_could_be_typed(call: Call, name: str) -> None:
    text = call(*name.split(), "--help").check().out
    examples = [
        line for line in text.splitlines() if f"graphile-worker {name}" in line and "Usage" not in line
    ]
    assert examples
    for line in examples:
        program, *arguments = words_of(line)
        assert program == "graphile-worker"
        parse(arguments)


def test_the_main_help_has_examples(call: Call) -> None:
    text = call("--help").check().out
    assert "  graphile-worker dev" in text
    assert "  graphile-worker -c postgres:///my_db -j 10" in text


def test_every_command_says_in_one_line_what_it_does() -> None:
    for name in COMMANDS:
        command = graphile_worker.get_command(click.Context(graphile_worker), name)
        assert command is not None
        assert command.get_short_help_str(limit=200).endswith((".", ";", ":")) or command.short_help
