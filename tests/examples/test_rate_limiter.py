"""Messages with the flag respect their limit; others do not wait for them."""

from __future__ import annotations

import re
from typing import Any

from support.working import until

RATE = 5.0
BURST = 1 + 1  # one more job may be fetched before the start of the last one is counted
LINE = re.compile(r"([\d.]+) (sms|email) (\d+)")


async def test_the_limit_is_kept_and_other_jobs_do_not_wait(example: Any) -> None:
    example.run()
    log = example.start()

    def lines() -> list[tuple[str, str, str]]:
        return LINE.findall(log.read_text())

    await until(lambda: len(lines()) >= 20, timeout=60)
    assert example.is_done
    times = {
        kind: sorted(float(at) for at, found, _ in lines() if found == kind) for kind in ("sms", "email")
    }
    assert [len(times["sms"]), len(times["email"])] == [10, 10]
    # No interval has more starts than a bucket of this size and rate allows. The tolerance is for a job that
    # prints its line a little late.
    for first in range(10):
        for last in range(first + 1, 10):
            elapsed = times["sms"][last] - times["sms"][first]
            assert last - first + 1 <= BURST + RATE * (elapsed + 0.15), times["sms"]
    assert times["email"][-1] < times["sms"][-1]
