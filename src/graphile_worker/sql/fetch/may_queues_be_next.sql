-- Whether a job of a named queue may be next, so that get_plain_jobs locks none.
with recursive
:include queues
select may_be_next from queues
