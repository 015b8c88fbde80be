-- Remove a database and end its sessions (PostgreSQL 13 and later). The name is written in as a quoted identifier.
drop database if exists :DATABASE with (force)
