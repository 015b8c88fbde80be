$graphile_worker_baseline$;
    elsif found < 20 then
        raise exception 'Graphile Worker is installed at revision %, and this script is for revision 20', found
            using hint = 'Run `graphile-worker migrate` first.';
    end if;
end;
$graphile_worker_script$;
