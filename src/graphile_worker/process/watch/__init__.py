"""A worker process that is restarted whenever its code changes."""
