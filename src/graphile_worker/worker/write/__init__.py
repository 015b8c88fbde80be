"""Writing outcomes, one batch after the other, with history, progress and events. Start in `sink`."""
