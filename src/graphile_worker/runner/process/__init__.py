"""A worker as an operating system process: signals, worker processes, reloading, health checks.

The command and `serve` both end in `run_service`; start there. The rest of `runner` does not know this
package; `cli` and `contrib` may import it.
"""
