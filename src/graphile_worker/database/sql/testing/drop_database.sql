-- Remove a database whose sessions were ended before. The name is written in as a quoted identifier.
drop database if exists :DATABASE
