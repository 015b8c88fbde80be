"""Running jobs: slots, the call of the task, its outcome, and jobs that are ended early. Start in `slots`."""
