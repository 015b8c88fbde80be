-- Error groups that are not shown.
select muted.fingerprint, muted.version, muted.until, muted.who, muted.reason, muted.at
from :GRAPHILE_WORKER_SCHEMA._private_py_muted_errors as muted
order by muted.at desc
limit 1000
