"""`python -m scripts.soak`: half an hour of mixed load, and a verdict on what grew that should not have."""
