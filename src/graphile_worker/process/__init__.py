"""A worker as an operating system process: signals, worker processes, reloading, health checks.

The command and `serve` both end in `run_service`. `cli` and `contrib` import this package. Start there.
"""
