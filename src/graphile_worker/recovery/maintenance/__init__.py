"""Regular work that one pool does for all, and jobs that no worker takes care of. Start in `tasks`."""
