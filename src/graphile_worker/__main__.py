"""Runs `graphile-worker` as `python -m graphile_worker`."""

from .cli.main import main

main()
