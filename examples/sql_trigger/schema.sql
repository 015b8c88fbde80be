-- Articles, and a job whenever one is added or its text changes.

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
        -- Many changes before a worker comes are one job; a change while it runs makes a new one.
        job_key => 'count_words:' || new.id
    );
    return new;
end;
$$;

create or replace trigger count_words
    after insert or update of title, body on articles
    for each row execute function articles_text_changed();
