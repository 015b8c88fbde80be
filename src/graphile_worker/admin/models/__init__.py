"""What the service returns and the API sends: structs, one module per subject.

Names are those of the Python client and of `json_shapes`.
"""
