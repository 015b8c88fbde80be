"""Reads options from the configuration file, the environment, and the command line or call."""

from .resolve import Settings, combine, resolve, resolve_settings

__all__ = ["Settings", "combine", "resolve", "resolve_settings"]
