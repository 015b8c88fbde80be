"""Shared by several commands: flags, settings, client, output, processes."""
