"""How we reach PostgreSQL; the only place that imports the driver.

`foreign/` adapts connections of other libraries. Start in `open`; `connection` has the protocols.
"""
