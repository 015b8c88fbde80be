-- A part of the last error, without what looks like a secret: the same rules as in admin/redact.py.
and pg_catalog.strpos(lower(
:include redacted_error
), lower(:value::text)) > 0
