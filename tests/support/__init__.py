"""What fixtures and tests share: the PostgreSQL server under test and the databases on it."""
