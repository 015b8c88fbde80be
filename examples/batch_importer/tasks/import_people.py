"""The task `import_people`: stores valid rows, and reports an error for each of the others."""

from __future__ import annotations

from dataclasses import dataclass

from graphile_worker import JobHelpers, task

PEOPLE = "create table if not exists people (name text primary key, born integer not null)"
STORE = """
insert into people (name, born) select * from unnest($1::text[], $2::integer[])
on conflict (name) do update set born = excluded.born
"""


@dataclass
class Person:
    name: str
    born: str


@task(max_attempts=5)
async def import_people(payload: list[Person], helpers: JobHelpers) -> list[Exception | None]:
    outcomes = [_problem(person) for person in payload]
    good = [person for person, problem in zip(payload, outcomes, strict=True) if problem is None]
    async with helpers.with_pg_client() as connection, connection.transaction():
        await connection.execute(PEOPLE)
        # One statement for all rows. It is idempotent: storing a row twice changes nothing.
        await connection.execute(
            STORE, [person.name for person in good], [int(person.born) for person in good]
        )
    helpers.logger.info("stored %d of %d people", len(good), len(payload))
    return outcomes


def _problem(person: Person) -> Exception | None:
    return None if person.born.isdigit() else ValueError(f"{person.name}: {person.born!r} is not a year")
