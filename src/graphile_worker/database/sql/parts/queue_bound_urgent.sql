candidate.priority <= ($7::smallint[])[pg_catalog.cardinality($7::smallint[])] -- the last range
