"""Executable files as tasks: one child process per job (TL6). Start in `executable`."""

import sys


def dismiss_guard() -> None:
    """End the guard of process groups, if a task has needed one."""
    module = sys.modules.get(f"{__name__}.process_group")
    if module is not None:
        module.guard.dismiss()
