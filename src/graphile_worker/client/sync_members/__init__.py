"""The members of the blocking client; `make reference` writes them from `members/`."""
