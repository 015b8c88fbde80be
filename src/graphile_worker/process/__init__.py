"""A worker as an operating system process: signals, worker processes, reloading, probes, systemd."""
