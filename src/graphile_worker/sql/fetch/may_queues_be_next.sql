-- Whether a job of a named queue may be next: then get_plain_jobs takes nothing.
with recursive
:include queues
select may_be_next from queues
