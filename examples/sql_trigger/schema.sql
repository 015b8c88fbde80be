-- Articles, and a job whenever one is inserted or its text changes.

create table if not exists articles (
    id bigint generated always as identity primary key,
    title text not null,
    body text not null default '',
    words integer
);

create or replace function articles_text_changed() returns trigger
language plpgsql
as $$
begin
    perform graphile_worker.add_job(
        'count_words',
        json_build_object('article_id', new.id),
        -- Changes while the job waits are combined into it; a change while it runs adds a new one.
        job_key => 'count_words:' || new.id
    );
    return new;
end;
$$;

create or replace trigger count_words
    after insert or update of title, body on articles
    for each row execute function articles_text_changed();
