"""Executable files as tasks."""
