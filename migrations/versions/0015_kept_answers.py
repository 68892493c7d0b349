"""Answers outside of conversations can be judged by whoever asked, and feedback can be settled.

Revision ID: 0015
Revises: 0014

An answer is its asker's alone. What its asker judged, an administrator's session may read; what nobody judged within
a day, the operator's session may delete. A settlement is the administrators'; it goes with the feedback it settles.
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

TABLES = [
    """
    CREATE TABLE kept_answers (
        id uuid CONSTRAINT pk_kept_answers PRIMARY KEY,
        user_id uuid NOT NULL CONSTRAINT fk_kept_answers_user_id REFERENCES users ON DELETE CASCADE,
        request_id text NOT NULL,
        capability text NOT NULL,
        index_name text NOT NULL,
        question text NOT NULL,
        answer text NOT NULL,
        refusal text,
        model text,
        prompt text,
        sources jsonb NOT NULL,
        asked_at timestamptz NOT NULL DEFAULT now(),
        verdict text CONSTRAINT ck_kept_answers_verdict CHECK (verdict IN ('right', 'wrong')),
        comment text,
        expected_source_id uuid
            CONSTRAINT fk_kept_answers_expected_source_id REFERENCES sources ON DELETE SET NULL,
        judged_at timestamptz,
        CONSTRAINT uq_kept_answers_user_id_request_id UNIQUE (user_id, request_id),
        CONSTRAINT ck_kept_answers_judged CHECK ((verdict IS NULL) = (judged_at IS NULL))
    )
    """,
    "CREATE INDEX ix_kept_answers_asked_at ON kept_answers (asked_at)",
    "CREATE INDEX ix_kept_answers_expected_source_id ON kept_answers (expected_source_id)",
    """
    ALTER TABLE judgments ADD COLUMN answer_id uuid
        CONSTRAINT fk_judgments_answer_id REFERENCES kept_answers ON DELETE CASCADE
    """,
    "CREATE INDEX ix_judgments_answer_id ON judgments (answer_id)",
    """
    ALTER TABLE judgments DROP CONSTRAINT uq_judgments_passage, ADD CONSTRAINT uq_judgments_passage
        UNIQUE NULLS NOT DISTINCT (org_id, index_name, query, source_id, "start", "end", feedback_id, answer_id)
    """,
    """
    CREATE TABLE feedback_settlements (
        id uuid CONSTRAINT pk_feedback_settlements PRIMARY KEY,
        feedback_id uuid
            CONSTRAINT uq_feedback_settlements_feedback_id UNIQUE
            CONSTRAINT fk_feedback_settlements_feedback_id REFERENCES rag_feedback ON DELETE CASCADE,
        answer_id uuid
            CONSTRAINT uq_feedback_settlements_answer_id UNIQUE
            CONSTRAINT fk_feedback_settlements_answer_id REFERENCES kept_answers ON DELETE CASCADE,
        resolution text NOT NULL
            CONSTRAINT ck_feedback_settlements_resolution CHECK (resolution IN ('fixed', 'noted', 'dismissed')),
        note text,
        settled_by uuid NOT NULL,
        settled_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT ck_feedback_settlements_one CHECK (num_nonnulls(feedback_id, answer_id) = 1)
    )
    """,
]

OWN = "user_id = (SELECT rag_user())"
ADMINISTRATOR = "(SELECT rag_administrator())"
EXPIRED = "(SELECT rag_operator()) AND verdict IS NULL AND asked_at < now() - interval '24 hours'"
# what may be settled, its own policies say: an administrator sees it
SETTLES = """(
    EXISTS (SELECT FROM rag_feedback f WHERE f.id = feedback_id)
    OR EXISTS (SELECT FROM kept_answers a WHERE a.id = answer_id AND a.verdict IS NOT NULL)
)"""


def upgrade() -> None:
    for statement in TABLES:
        op.execute(statement)
    for table in ("kept_answers", "feedback_settlements"):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY own ON kept_answers USING ({OWN}) WITH CHECK ({OWN})")
    op.execute(
        f"CREATE POLICY administrator ON kept_answers FOR SELECT USING ({ADMINISTRATOR} AND verdict IS NOT NULL)"
    )
    for command in ("SELECT", "DELETE"):  # a DELETE that reads a column needs both
        op.execute(f"CREATE POLICY expired_{command.lower()} ON kept_answers FOR {command} USING ({EXPIRED})")
    op.execute(
        f"CREATE POLICY administrator ON feedback_settlements USING ({ADMINISTRATOR})"
        f" WITH CHECK ({ADMINISTRATOR} AND {SETTLES})"
    )


def downgrade() -> None:
    op.execute("DROP TABLE feedback_settlements")
    op.execute("ALTER TABLE judgments NO FORCE ROW LEVEL SECURITY")  # or the owner finds no row
    op.execute("DELETE FROM judgments WHERE answer_id IS NOT NULL")
    op.execute("ALTER TABLE judgments FORCE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE judgments DROP COLUMN answer_id")
    op.execute(
        "ALTER TABLE judgments ADD CONSTRAINT uq_judgments_passage"
        ' UNIQUE NULLS NOT DISTINCT (org_id, index_name, query, source_id, "start", "end", feedback_id)'
    )
    op.execute("DROP TABLE kept_answers")
