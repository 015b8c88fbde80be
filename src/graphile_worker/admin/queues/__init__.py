"""Named queues: how long, how old, busy with what, paused until when."""
