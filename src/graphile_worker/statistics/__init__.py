"""Statistics of what this package's workers do: counted in memory, written now and then, kept for a while."""
