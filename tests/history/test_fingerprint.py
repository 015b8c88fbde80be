"""Errors of one kind share a fingerprint."""

from __future__ import annotations

from graphile_worker.history.error_groups import fingerprint, place_in, template_of
from support.cases import looped

TRACEBACK = """Traceback (most recent call last):
  File "/app/tasks/mail.py", line {line}, in send
    deliver(address)
  File "/usr/lib/python3.13/site-packages/smtp.py", line 80, in deliver
    raise ConnectionError(message)
ConnectionError: {message}"""


def marked(message: str = "no route to 10.0.0.1", line: int = 7, kind: str = "ConnectionError") -> str:
    return fingerprint("send_email", kind, message, TRACEBACK.format(line=line, message=message))


def test_values_and_lines_do_not_matter() -> None:
    assert marked() == marked("no route to 10.0.0.25", line=90)


def test_type_place_and_words_matter() -> None:
    other_place = fingerprint(
        "send_email", "ConnectionError", "no route to 10.0.0.1", TRACEBACK.replace("in send", "in resend")
    )
    assert len({marked(), marked("refused"), marked(kind="TimeoutError"), other_place}) == 4


@looped(
    ("message", "template"),
    [
        ("user 17 has no address", "user … has no address"),
        ("KeyError: 'sku'", "KeyError: …"),
        ("order 3f2504e0-4f89-11d3-9a0c-0305e82c3301 is gone", "order … is gone"),
        ("at 0x7f3a and 12", "at … and …"),
        ("two\nlines", "two"),
        ("", ""),
    ],
)
def test_variable_parts_are_left_out(message: str, template: str) -> None:
    assert template_of(message) == template


def test_the_place_is_the_innermost_frame_of_the_application() -> None:
    assert place_in(TRACEBACK.format(line=7, message="x")) == "/app/tasks/mail.py in send"
    assert place_in("ValueError: no frames") == ""


def test_frames_in_a_message_count_as_before() -> None:
    remote = 'failed elsewhere:\n  File "/remote/job.py", line 3, in work'
    for message in (remote, f"{remote}\nValueError: no", "x\n\n", ""):
        expected = "/remote/job.py in work" if "remote" in message else "/app/tasks/mail.py in send"
        assert place_in(TRACEBACK.format(line=7, message=message)) == expected
