"""Hooks of mkdocs, named in mkdocs.yml."""
