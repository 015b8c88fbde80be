"""Writes the reference pages of the documentation from the code and from an installed schema."""
