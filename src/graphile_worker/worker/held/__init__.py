"""Held batches: short jobs run inside the transaction that fetched them. Start in `batches`.

See docs/design/0030-held-batches.md.
"""
