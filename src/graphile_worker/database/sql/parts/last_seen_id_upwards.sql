                select max(seen.id) from seen
