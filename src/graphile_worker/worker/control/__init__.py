"""What operators want of a running pool: pauses, cancelled jobs, commands. Start in `watch`."""
