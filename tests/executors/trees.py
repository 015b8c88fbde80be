"""Starts processes which start others. Their ids are in a file, one per line.

Imports nothing that takes long, because executables use it, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TREE = 'trap "" TERM; sleep 3600 & echo $! >> "$0"; echo $$ >> "$0"; wait; sleep 3600'
"""A shell and its child, which ignore SIGTERM."""
MEMBERS = 3  # with the process that runs the task


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that nobody has reaped does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # it has just exited, or there is no /proc here
        return not Path("/proc/self").exists()


def pids(file: str | Path) -> list[int]:
    """The processes that a task has started, and the one that runs it; empty while they start."""
    found = [int(line) for line in Path(file).read_text().split()]
    return found if len(found) == MEMBERS else []


def plant_tree(payload: dict[str, Any]) -> None:
    """Start the tree; the second time, only say who is left of it."""
    file = Path(payload["file"])
    if file.read_text():
        left = [pid for pid in pids(file) if is_alive(pid)]
        file.with_name("second").write_text(f"beside {left}")
        return
    subprocess.Popen(["/bin/sh", "-c", TREE, str(file)])
    while len(file.read_text().split()) < MEMBERS - 1:
        time.sleep(0.01)
    with file.open("a") as notes:
        notes.write(f"{os.getpid()}\n")
    if payload.get("crashes"):
        os._exit(7)
    if payload.get("returns"):
        return
    if payload.get("counts"):
        keep_the_interpreter()
    time.sleep(3600)


def keep_the_interpreter() -> None:
    """Never return from C code, as a long calculation there does, but without using the processor."""
    import ctypes

    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    for _ in range(2):  # the second time it waits for itself, and no signal ends that
        library.pthread_mutex_lock(mutex)
    sum(range(10**12))  # where a mutex of zeros is none


EXECUTABLE = f"""#!{sys.executable} -S
import json, os, sys
sys.path[:0] = [{str(Path(__file__).parents[1])!r}]
from executors.trees import plant_tree
plant_tree(json.load(sys.stdin)["payload"])
"""
