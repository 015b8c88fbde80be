"""Integrations with other libraries, one module each. Nothing else of this package imports them."""
