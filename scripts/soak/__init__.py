"""`python -m scripts.soak`: half an hour of mixed load, and a result on what grew that should not have."""
