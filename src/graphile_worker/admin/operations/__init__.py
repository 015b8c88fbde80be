"""Operations: changes to all jobs that match a filter, in steps that go on without a browser."""
