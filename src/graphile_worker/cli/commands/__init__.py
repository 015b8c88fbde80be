"""The sub-commands, one module for each group; `cli/main.py` imports them when they are called."""
