"""Poison jobs and supervised workers with the default settings; see `__main__`."""
