"""The tasks. Each module has a payload type and the task that takes it."""
