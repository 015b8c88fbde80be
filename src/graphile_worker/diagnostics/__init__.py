"""Diagnostics: facts about a database, its jobs and workers, and what they mean.

`graphile-worker doctor`, `graphile-worker show` and the dashboard show it.
"""
