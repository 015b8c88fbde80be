-- The member of the payload at `path`, a JSON array of names, is `value`, as text. Escapes
-- that are no text for PostgreSQL (NUL, halves of surrogate pairs) would be an error: such payloads do not match.
and case
    when pg_catalog.strpos(job.payload::text, '\u') > 0 and job.payload::text ~ (
        '\\u0000|\\u[dD][89aAbB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89aAbB]..)\\u[dD][c-fC-F]'
    ) then false
    else job.payload #>> array(
        select member.name from pg_catalog.json_array_elements_text(:path::json) as member (name)
    ) = :value::text
end
