"""The registry of workers: the table of pools, what each says about itself, blocked event loops."""
