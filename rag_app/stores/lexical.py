"""The analyzer of lexical search, for stores that are not PostgreSQL: PostgreSQL's own."""

from collections.abc import Sequence

from rag_app.stores.postgres_pool import LazyPool, postgres_failures

_TERMS = """
    SELECT number, term, sum(tf)::integer AS tf
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS input (lang, body, number), LATERAL rag_terms(lang, body)
    GROUP BY number, term"""


class Analyzer:
    """Texts to hashed lexemes with their counts, by the SQL function `rag_terms`."""

    def __init__(self, dsn: str) -> None:
        self._pool = LazyPool(dsn, 4)

    async def __call__(self, languages: Sequence[str], texts: Sequence[str]) -> list[dict[int, int]]:
        """The terms of each text, analyzed in the language at its place."""
        found: list[dict[int, int]] = [{} for _ in texts]
        with postgres_failures():
            pool = await self._pool.opened()
            rows = await pool.fetch(_TERMS, list(languages), list(texts))
        for row in rows:
            found[row["number"] - 1][row["term"]] = row["tf"]
        return found

    async def close(self) -> None:
        await self._pool.close()
