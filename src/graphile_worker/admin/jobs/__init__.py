"""Jobs as the API and the pages show them.

The names are those of `graphile-worker list --json` and `show --json` (see diagnostics/json_shapes).
"""
