"""What all tables share. Each room declares its own in a module named `tables`; migrations create them, and a test
compares the two.

Row-level security, the functions it reads and the grants are in `migrations/versions`, and explained in
`rag_app.database.session`: models cannot express them.
"""

from datetime import date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar
from uuid import UUID, uuid4

from sqlalchemy import Date, DateTime, Double, MetaData, Numeric, Text, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

from rag_app.domain import JsonObject

REVISION = "0026"
"""The migration that these models describe: a server refuses a database at another one."""


NewId = Annotated[UUID, mapped_column(primary_key=True, default=uuid4)]
InsertTime = Annotated[datetime, mapped_column(server_default=func.now())]
Json = Annotated[JsonObject, mapped_column(server_default=text("'{}'"))]
"""Kinds of columns: an id that is made with its row, the moment of the insert, an object that is empty at first."""


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text,
        float: Double,
        datetime: DateTime(timezone=True),
        date: Date,
        Decimal: Numeric,
        JsonObject: JSONB,
        list[JsonObject]: JSONB,
    }


def all_tables() -> MetaData:
    """The tables of every room."""
    package = Path(__file__).resolve().parents[1]
    for file in sorted(package.rglob("tables.py")):
        import_module(".".join(file.relative_to(package.parent).with_suffix("").parts))
    return Base.metadata
