"""A worker as an operating system process: signals, worker processes, reloading, and the health file."""
