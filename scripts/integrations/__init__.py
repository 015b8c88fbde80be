"""`make integrations`: the suites of integrations on the oldest and newest versions of the libraries.

Each combination has a virtual environment of its own below .venv/integrations, which later runs use again.
"""
