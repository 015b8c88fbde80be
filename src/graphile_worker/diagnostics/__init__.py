"""What is wrong with a database or a worker: facts, and what they mean.

Shown by `graphile-worker doctor`, `show` and the dashboard; `tasks` and what is above it may import this
package. Start in `examine`.
"""
