"""Integrations with other libraries, one module or package each.

Nothing else in this package imports them. Start with the one for your library.
"""
