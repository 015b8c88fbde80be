-- Choose the next jobs like get_tied_jobs while jobs with a key or of a named queue wait too: look at which of them may be
-- next.
--
-- Parameters and result are those of get_tied_jobs.
with recursive
:include held_terms
:include keyed
:include free_queues
,
:include tied
