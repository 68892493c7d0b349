"""The table of prompt versions."""

from uuid import UUID

from sqlalchemy import CheckConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from rag_app.database.tables import Base, InsertTime, Json


class PromptConfigRow(Base):
    """A version of a prompt. Files seed the table at `db upgrade`; from then on the table says what is active."""

    __tablename__ = "lexybrain_prompt_configs"
    __table_args__ = (
        CheckConstraint("weight >= 0", name="weight"),
        Index(None, "type", postgresql_where=text("is_active")),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    name: Mapped[str] = mapped_column(unique=True)
    type: Mapped[str]
    instructions: Mapped[str] = mapped_column("system_instructions")
    constraints: Mapped[Json]
    weight: Mapped[int] = mapped_column(server_default=text("1"))
    active: Mapped[bool] = mapped_column("is_active", server_default=text("false"))
    created_at: Mapped[InsertTime]
    updated_at: Mapped[InsertTime]
