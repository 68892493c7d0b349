"""Feedback, consent to training, and what is collected under it.

Revision ID: 0007
Revises: 0006

All of it belongs to a user and is under row-level security by user; an administrator's session may read feedback.
What was collected for training nobody else's session reads: it is exported user by user, of those who consent.
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TABLES = [
    "ALTER TABLE users ADD COLUMN training_opt_in_at timestamptz",
    """
    CREATE TABLE rag_feedback (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_rag_feedback PRIMARY KEY,
        message_id uuid NOT NULL CONSTRAINT fk_rag_feedback_message_id REFERENCES rag_messages ON DELETE CASCADE,
        user_id uuid NOT NULL CONSTRAINT fk_rag_feedback_user_id REFERENCES users ON DELETE CASCADE,
        rating text NOT NULL CONSTRAINT ck_rag_feedback_rating CHECK (rating IN ('positive', 'negative', 'neutral')),
        feedback_text text,
        expected_source_id uuid
            CONSTRAINT fk_rag_feedback_expected_source_id REFERENCES sources ON DELETE SET NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT uq_rag_feedback_message_id_user_id UNIQUE (message_id, user_id)
    )
    """,
    "CREATE INDEX rag_feedback_user_id_idx ON rag_feedback (user_id, created_at DESC)",
    "CREATE INDEX rag_feedback_rating_idx ON rag_feedback (rating)",
    "CREATE INDEX ix_rag_feedback_created_at ON rag_feedback (created_at)",
    "CREATE INDEX ix_rag_feedback_expected_source_id ON rag_feedback (expected_source_id)",
    """
    ALTER TABLE judgments ADD COLUMN feedback_id uuid
        CONSTRAINT fk_judgments_feedback_id REFERENCES rag_feedback ON DELETE CASCADE
    """,
    "CREATE INDEX ix_judgments_feedback_id ON judgments (feedback_id)",
    # what two users say, and what was judged by hand, goes and stays each by itself
    """
    ALTER TABLE judgments
        DROP CONSTRAINT uq_judgments_org_id_index_name_query_source_id_start_end,
        ADD CONSTRAINT uq_judgments_passage
            UNIQUE NULLS NOT DISTINCT (org_id, index_name, query, source_id, "start", "end", feedback_id)
    """,
    """
    CREATE TABLE lexybrain_requests (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_lexybrain_requests PRIMARY KEY,
        message_id uuid NOT NULL
            CONSTRAINT uq_lexybrain_requests_message_id UNIQUE
            CONSTRAINT fk_lexybrain_requests_message_id REFERENCES rag_messages ON DELETE CASCADE,
        user_id uuid NOT NULL CONSTRAINT fk_lexybrain_requests_user_id REFERENCES users ON DELETE CASCADE,
        capability text NOT NULL,
        prompt jsonb NOT NULL,
        context jsonb NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "CREATE INDEX ix_lexybrain_requests_user_id_created_at ON lexybrain_requests (user_id, created_at)",
    """
    CREATE TABLE lexybrain_responses (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_lexybrain_responses PRIMARY KEY,
        request_id uuid NOT NULL
            CONSTRAINT uq_lexybrain_responses_request_id UNIQUE
            CONSTRAINT fk_lexybrain_responses_request_id REFERENCES lexybrain_requests ON DELETE CASCADE,
        user_id uuid NOT NULL CONSTRAINT fk_lexybrain_responses_user_id REFERENCES users ON DELETE CASCADE,
        model_id text NOT NULL,
        content text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "CREATE INDEX ix_lexybrain_responses_user_id ON lexybrain_responses (user_id)",
    # who did what stays written down when a user is erased: the id alone
    "ALTER TABLE audit_events DROP CONSTRAINT fk_audit_events_actor_id",
    # statistics of a period, over all threads
    "CREATE INDEX ix_rag_messages_created_at ON rag_messages (created_at)",
]

OWN = "user_id = (SELECT rag_user())"
# whose the message is, the message's own policies say
ABOUT_OWN = (
    f"{OWN} AND EXISTS (SELECT FROM rag_messages m JOIN rag_threads t ON t.id = m.thread_id"
    " WHERE m.id = message_id AND t.user_id = (SELECT rag_user()))"
)
# for the operator, who tells a user what is written down about them
ABOUT_ONE = (
    "actor_id = (SELECT rag_user()) OR subject = (SELECT rag_user())::text"
    " OR details ->> 'user' = (SELECT rag_user())::text"
)
POLICIES = {
    "rag_feedback": (OWN, ABOUT_OWN, "(SELECT rag_administrator())"),
    "lexybrain_requests": (OWN, ABOUT_OWN, None),
    "lexybrain_responses": (OWN, OWN, None),
}
"""Which rows a user has, which they may write, and who else may read them."""


def upgrade() -> None:
    for statement in TABLES:
        op.execute(statement)
    for table, (own, written, reader) in POLICIES.items():
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY own ON {table} USING ({own}) WITH CHECK ({written})")
        if reader:
            op.execute(f"CREATE POLICY administrator ON {table} FOR SELECT USING ({reader})")
    op.execute(f"CREATE POLICY about ON audit_events FOR SELECT USING ((SELECT rag_operator()) AND ({ABOUT_ONE}))")


def downgrade() -> None:
    op.execute("DROP POLICY about ON audit_events")
    for table in ("audit_events", "judgments"):
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")  # or the owner finds no row
    op.execute("UPDATE audit_events SET actor_id = NULL WHERE actor_id NOT IN (SELECT id FROM users)")
    op.execute("DELETE FROM judgments WHERE feedback_id IS NOT NULL")
    for table in ("audit_events", "judgments"):
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute(
        "ALTER TABLE audit_events ADD CONSTRAINT fk_audit_events_actor_id"
        " FOREIGN KEY (actor_id) REFERENCES users ON DELETE SET NULL"
    )
    op.execute("DROP INDEX ix_rag_messages_created_at")
    op.execute("DROP TABLE lexybrain_responses")
    op.execute("DROP TABLE lexybrain_requests")
    op.execute("ALTER TABLE judgments DROP COLUMN feedback_id")
    op.execute(
        "ALTER TABLE judgments ADD CONSTRAINT uq_judgments_org_id_index_name_query_source_id_start_end"
        ' UNIQUE NULLS NOT DISTINCT (org_id, index_name, query, source_id, "start", "end")'
    )
    op.execute("DROP TABLE rag_feedback")
    op.execute("ALTER TABLE users DROP COLUMN training_opt_in_at")
