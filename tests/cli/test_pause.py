"""`graphile-worker pause` and `resume`, and where pauses are shown."""

from __future__ import annotations

from pathlib import Path

from support.cases import looped
from support.command_line import Call


def test_pausing_listing_and_resuming(gw: Call) -> None:
    assert gw("pause").check().out == "Nothing is paused.\n"
    assert gw("pause", "--queue", "emails", "--reason", "bad file").check().out == (
        "Paused queue emails (bad file).\n"
    )
    assert gw("pause", "--all", "--until", "2130-01-31T12:00:00Z").check().out == (
        "Paused every task until 2130-01-31 12:00:00 UTC.\n"
    )
    listed = gw("pause").check().out.splitlines()
    assert [line.split("  ")[0] for line in listed] == ["PAUSED", "every task", "queue emails"]
    assert [(pause["task_identifier"], pause["queue_name"]) for pause in gw("pause", "--json").json] == [
        (None, None), (None, "emails"),
    ]  # fmt: skip
    result = gw("resume", "--all").check()
    assert result.out == "Resumed every task.\n"
    assert result.err == "Still paused: queue emails (bad file).\n"
    assert gw("resume", "--queue", "emails", "--queue", "Other").check().out == (
        "Resumed queue emails.\nQueue Other was not paused.\n"
    )
    assert gw("resume", "--task", "a", "--json").json == [
        {"task_identifier": "a", "queue_name": None, "schedule": None, "was_paused": False}
    ]


def test_a_task_that_the_database_does_not_know_is_paused_with_a_warning(gw: Call, place: Path) -> None:
    (place / "tasks").mkdir()
    (place / "tasks" / "send_email.py").write_text("def send_email(payload): ...\n")
    gw("--once").check()
    gw("add", "send_emale").check()  # misspelt too, and never suggested
    result = gw("pause", "--task", "send_email", "--task", "send_emial", "--for", "10m", "--json").check()
    assert [pause["task_identifier"] for pause in result.json] == ["send_email", "send_emial"]
    assert result.err == (
        "graphile-worker: warning: the database has no task 'send_emial'; did you mean 'send_email'?\n"
    )


@looped(
    ("arguments", "problem"),
    [
        (["pause", "--for", "1h"], "Name what to pause: --queue, --task, --schedule, --worker or --all."),
        (["pause", "--all", "--for", "1h", "--until", "2h"], "--for and --until cannot be combined."),
        (["pause", "--all", "--until", "2020-01-01T00:00:00Z"], "--until must be in the future."),
        (["pause", "--all", "--for", "0s"], "--for must be in the future."),
        (["pause", "--all", "--for", "soon"], "'soon' is not a period such as"),
        (["resume"], "Name what to resume: --queue, --task, --schedule, --worker or --all."),
        (["unpause"], "Did you mean 'resume'?"),
    ],
)
def test_what_makes_no_sense_is_refused(gw: Call, arguments: list[str], problem: str) -> None:
    result = gw(*arguments)
    assert result.status == 2
    assert problem in result.err


def test_pauses_are_shown_where_one_would_look(gw: Call) -> None:
    gw("add", "send", "--queue", "emails").check()
    gw("add", "send", "--queue", "other").check()
    assert "STATE" not in gw("queues").check().out
    gw("pause", "--queue", "emails", "--reason", "bad file").check()
    gw("pause", "--task", "send").check()
    assert "Paused: task send.\nPaused: queue emails (bad file).\n" in gw("stats").check().out
    assert [pause["reason"] for pause in gw("stats", "--json").json["pauses"]] == [None, "bad file"]
    rows = gw("queues").check().out.splitlines()
    assert [row.split()[0] for row in rows] == ["QUEUE", "emails", "other"]
    assert rows[1].endswith("paused (bad file)")
    assert [queue["pause"] and queue["pause"]["reason"] for queue in gw("queues", "--json").json] == [
        "bad file", None,
    ]  # fmt: skip
    assert gw("workers").check().err == "Paused: task send.\nPaused: queue emails (bad file).\n"
    report = gw("doctor").check().out
    assert "info     pauses: paused: task send, queue emails (bad file)\n" in report
    assert "stuck" not in report.replace("no named queue is stuck", "")


def test_a_reason_with_several_lines_is_shown_on_one(gw: Call) -> None:
    shown = "queue emails (bad file please wait)"
    assert gw("pause", "--queue", "emails", "--reason", "bad file\nplease\twait").check().out == (
        f"Paused {shown}.\n"
    )
    assert f"Paused: {shown}.\n" in gw("stats").check().out
    assert gw("resume", "--all").check().err == f"Still paused: {shown}.\n"


def test_many_pauses_are_summed_up(gw: Call) -> None:
    queues = [argument for number in range(12) for argument in ("--queue", f"q{number:02}")]
    gw("pause", *queues).check()
    assert gw("stats").check().out.count("Paused: queue") == 10
    assert "Paused: 2 more; `graphile-worker pause` lists all.\n" in gw("stats").check().out
    assert len(gw("pause", "--json").json) == 12


def test_unlocking_does_not_end_a_pause(gw: Call) -> None:
    gw("pause", "--queue", "emails").check()
    result = gw("force-unlock", "py:hold")
    assert result.status == 1
    assert "'py:hold' is not a worker: the queues it locks are paused; resume them" in result.err
