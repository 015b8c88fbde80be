"""Generates the reference pages from the code and from an installed schema."""
