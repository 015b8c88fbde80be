"""The registry of workers."""
