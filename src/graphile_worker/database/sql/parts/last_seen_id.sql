                select min(seen.id) from seen
