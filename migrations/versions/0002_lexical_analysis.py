"""Lexical analysis: one analyzer for both vector stores.

Revision ID: 0002
Revises: 0001
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

CONFIGURATIONS = {
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "es": "spanish", "et": "estonian", "eu": "basque", "fi": "finnish", "fr": "french", "ga": "irish",
    "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian",
    "ne": "nepali", "nl": "dutch", "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip


def upgrade() -> None:
    cases = " ".join(f"WHEN '{lang}' THEN 'pg_catalog.{name}'::regconfig" for lang, name in CONFIGURATIONS.items())
    op.execute(
        f"""
        CREATE FUNCTION rag_text_config(lang text) RETURNS regconfig
        LANGUAGE sql IMMUTABLE PARALLEL SAFE
        RETURN CASE lang {cases} ELSE 'pg_catalog.simple'::regconfig END
        """
    )
    # A term is 32 bits of a hash over language and lexeme: the same on both stores, narrow in the postings,
    # and a French lexeme never counts as the English one of the same letters.
    op.execute(
        """
        CREATE FUNCTION rag_terms(lang text, body text) RETURNS TABLE (term integer, tf integer)
        LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 100
        BEGIN ATOMIC
            SELECT ('x' || left(md5($1 || ':' || word.lexeme), 8))::bit(32)::integer, cardinality(word.positions)
            FROM unnest(to_tsvector(rag_text_config($1), $2)) AS word;
        END
        """
    )
    op.execute("COMMENT ON FUNCTION rag_terms IS 'Hashed lexemes of a text and how often each occurs in it'")


def downgrade() -> None:
    op.execute("DROP FUNCTION rag_terms(text, text)")
    op.execute("DROP FUNCTION rag_text_config(text)")
