"""The table of prompt versions."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from rag_app.database.tables import Base


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
    constraints: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    weight: Mapped[int] = mapped_column(server_default=text("1"))
    active: Mapped[bool] = mapped_column("is_active", server_default=text("false"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
