"""Everything the dashboard can ask and do, one module per subject. No HTTP: the API and the pages call it."""
