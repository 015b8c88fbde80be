"""Diagnostics: facts about a database and a worker, and what they mean; shown by `graphile-worker doctor`."""
