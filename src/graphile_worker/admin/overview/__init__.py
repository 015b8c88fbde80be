"""Overview: the state of everything, worst first."""
