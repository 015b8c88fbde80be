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
    # No more starts than a bucket of this size and rate allows, although the first line may be printed a
    # second late. Without the limit they would take a few hundredths of a second.
    elapsed = times["sms"][-1] - times["sms"][0]
    assert BURST + RATE * (elapsed + 1.0) >= 10, times["sms"]
    # If e-mails waited for messages that were added before them, all would be sent after the last of these.
    assert times["email"][0] < times["sms"][-1]
