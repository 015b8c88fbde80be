"""The task `count_words`: counts the words of an article and stores the number."""

from __future__ import annotations

from typing import TypedDict

from graphile_worker import JobHelpers


class Payload(TypedDict):
    article_id: int


async def count_words(payload: Payload, helpers: JobHelpers) -> None:
    async with helpers.with_pg_client() as connection:
        text = await connection.fetchval(
            "select title || ' ' || body from articles where id = $1", payload["article_id"]
        )
        if text is None:
            return  # the article was deleted
        await connection.execute(
            "update articles set words = $2 where id = $1", payload["article_id"], len(text.split())
        )
    helpers.logger.info("article %s has %s words", payload["article_id"], len(text.split()))
