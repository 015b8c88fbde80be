"""Executable files as tasks: one child process per job (TL6). Start in `executable`."""
