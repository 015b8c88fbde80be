"""Plugins by name in worker processes: loaded after the fork, and again after a reload."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from service.programs import Start

PLUGIN = """\
import logging, os

class Notes:
    def __init__(self, *, words="none"):
        self.words = words

    def install(self, hooks):
        logging.getLogger("notes").warning("installed in %d: {version} %s", os.getpid(), self.words)
"""
TASKS = "from graphile_worker import task\n\n@task\ndef hello(payload): pass\n"
CONFIGURATION = """\
processes = 2
plugins = ["notes:Notes"]
plugin_options."notes:Notes".words = "from the file"
"""


def installed(output: str, version: str) -> list[int]:
    return [int(pid) for pid in re.findall(rf"installed in (\d+): {version} from the file", output)]


def test_each_process_loads_them_and_a_reload_loads_the_current_code(start: Start, tmp_path: Path) -> None:
    (tmp_path / "graphile_worker.toml").write_text(CONFIGURATION)
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "notes.py").write_text(PLUGIN.format(version="one"))
    worker = start("-m", "graphile_worker", "--tasks", "tasks.py")
    worker.wait_for("installed in", times=2)
    processes = installed(worker.output, "one")
    assert len(set(processes)) == 2
    assert worker.pid not in processes
    (tmp_path / "notes.py").write_text(PLUGIN.format(version="number two"))
    worker.send(signal.SIGHUP)
    worker.wait_for("number two from the file", times=2).ready()
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143


def test_a_mistake_ends_the_command_in_one_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    worker = start("-m", "graphile_worker", "--tasks", "tasks.py", "--plugin", "sentri")
    assert worker.ended() == 1
    (line,) = [line for line in worker.output.splitlines() if "error" in line]
    assert line == "graphile-worker: error: plugins: there is no plugin 'sentri'; did you mean 'sentry'?"
