-- End cancelled jobs where there is no history; see parts/ended_cancelled.
with
:include ended_cancelled
select id, reason from ended where $4::text is not null
