"""What is asked of the database, one module per subject: functions that take a connection.

Adding (`add`, `add_many`), the engine (`fetch`, `held_batches`, `limits`, `write_plan`, `write`), operators
(`manage_jobs`, `bulk_changes`, `pauses`, `control`, `schedules`, `cleanup`), reading (`inspection`).
"""
