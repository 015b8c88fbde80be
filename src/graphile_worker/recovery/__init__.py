"""Workers that die, and their jobs.

- `registry/`: the table of worker pools, which everyone can read.
- This folder: heartbeat and lease while a worker is alive, sweeps that recover the jobs of dead ones, and
  regular work, which `maintenance` has one pool do for all.

`client` and what is above it may import this package. Start in `service`, then `sweep`.
"""
