"""What all tables share. Each room declares its own in a module named `tables`; migrations create them, and a test
compares the two.

Row-level security, the functions it reads and the grants are in `migrations/versions`, and explained in
`rag_app.database.session`: tables cannot express them.
"""

from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Column, ColumnElement, DateTime, MetaData, Uuid, any_, func, literal
from sqlalchemy.dialects.postgresql import ARRAY

REVISION = "0027"
"""The migration that these tables describe: a server refuses a database at another one."""


SCHEMA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)
"""What every room adds its tables to, as SQLAlchemy's `Table`: a column is named where SQL names it."""


def id_column() -> Column[Any]:
    """The primary key of a table whose rows get a random id when they are inserted."""
    return Column("id", Uuid, primary_key=True, default=uuid4)


def time_of_insert() -> Column[Any]:
    """When a row was inserted: the beginning of its transaction."""
    return Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now())


def matches_any(column: ColumnElement[Any], values: Collection[Any]) -> ColumnElement[bool]:
    """Binds all values as one parameter, so that any number of them uses one prepared statement."""
    return column == any_(literal([*values], ARRAY(column.type)))


def all_tables() -> MetaData:
    """The tables of every room."""
    package = Path(__file__).resolve().parents[1]
    for file in sorted(package.rglob("tables.py")):
        import_module(".".join(file.relative_to(package.parent).with_suffix("").parts))
    return SCHEMA
