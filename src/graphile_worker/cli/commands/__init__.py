"""The sub-commands; `cli/main.py` imports each when it is called."""
