"""What tests ask of migrations, and the product does not."""

from pathlib import Path

from alembic import command
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from rag_app.database.migrate import config, in_transaction


def downgrade(owner_url: str, migrations: Path, revision: str) -> None:
    """Downgrade the schema to `revision`, or to none ("base"). Everything newer migrations created is lost."""
    in_transaction(owner_url, lambda connection: command.downgrade(config(migrations, connection), revision))


def current(owner_url: str) -> str | None:
    """The revision the database is at; None before the first upgrade."""
    return in_transaction(owner_url, lambda connection: MigrationContext.configure(connection).get_current_revision())


def head(migrations: Path) -> str | None:
    """The newest revision among the files."""
    return ScriptDirectory.from_config(config(migrations)).get_current_head()
