"""The analyzer of lexical search, PostgreSQL's own: also for vector stores that are not PostgreSQL."""

from collections.abc import Sequence

from rag_app.database.session import Database

_TERMS = """
    SELECT number, term, sum(tf)::integer AS tf
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS input (lang, body, number), LATERAL rag_terms(lang, body)
    GROUP BY number, term"""


async def analyze(database: Database, languages: Sequence[str], texts: Sequence[str]) -> list[dict[int, int]]:
    """The hashed lexemes of each text with their counts, analyzed in the language at its place."""
    found: list[dict[int, int]] = [{} for _ in texts]
    for row in await database.fetch(_TERMS, list(languages), list(texts)):
        found[row["number"] - 1][row["term"]] = row["tf"]
    return found
