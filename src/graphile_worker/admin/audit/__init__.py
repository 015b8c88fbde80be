"""The audit: who did what, and what can be undone."""
