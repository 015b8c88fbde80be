"""How a permanent failure is put into words, the same for exceptions, commands, the dashboard and Django.

The shared schema stores a permanent failure as `attempts = max_attempts`, also if a job was given up on its
first attempt. What is known beside that is `attempts_made`; None if nothing is.
"""

from __future__ import annotations


def how_it_failed(attempts_made: int | None, max_attempts: int | None) -> str:
    """After how many attempts a job failed permanently; empty if that is not known."""
    if attempts_made is None or max_attempts is None:
        return ""
    if attempts_made == 0:
        return "given up before its first attempt"
    if attempts_made < max_attempts:
        return f"gave up on attempt {attempts_made} of {max_attempts}"
    return "its only attempt used" if max_attempts == 1 else f"all {max_attempts} attempts used"


def failed_permanently(attempts_made: int | None, max_attempts: int | None) -> str:
    """The same as a whole: `failed permanently, gave up on attempt 1 of 4`."""
    how = how_it_failed(attempts_made, max_attempts)
    return f"failed permanently, {how}" if how else "failed permanently"
