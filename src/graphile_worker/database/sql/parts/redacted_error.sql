    pg_catalog.regexp_replace(
        pg_catalog.regexp_replace(job.last_error, '(://[^[:space:]/:@]{0,200}):[^[:space:]@]+@', '\1:@', 'g'),
        '((?:pass[_-]?word|passwd|passphrase|secret|token|api[_-]?key|authorization|cookie|session|credential|private[_-]?key)'
        '[[:alnum:]_-]*\\{0,8}["'']?\]?[[:space:]]{0,8}[:=][[:space:]]{0,8})'
        '(?:(?:bearer|basic|digest)[[:space:]]{1,8})?'
        '(?:"(?:[^"\\]|\\.)*"|''(?:[^''\\]|\\.)*''|\\{1,8}["''][^\n]*|"[^"]*\Z|''[^'']*\Z|[^[:space:],;&)}\]]+)',
        '\1', 'gi'
    )
