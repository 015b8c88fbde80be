"""The example that prints a trace."""

from __future__ import annotations

import subprocess
import sys

from docs.blocks import ROOT
from support.command_line import clean_environment


def test_the_trace_of_a_request_is_printed_as_a_tree(database_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.tracing"],
        cwd=ROOT,
        env=clean_environment(DATABASE_URL=database_url),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first.startswith("trace ")
    tree = [line[:42].rstrip() for line in lines]
    for part in (
        "POST /orders/{number}",
        "  send place_order",
        "    process place_order",
        "      send charge_card",
        "        process charge_card",
        "          send notify",
        "            process notify",
    ):
        assert part in tree, done.stdout
    assert tree.count("        process charge_card") == 2
    assert "error: the bank did not answer" in done.stdout
