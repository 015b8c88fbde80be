"""Workers: what each runs, and what operators ask of them."""
