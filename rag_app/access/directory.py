"""People and their rights in one database: all that commands without a search need."""

from datetime import timedelta
from typing import TYPE_CHECKING

from rag_app.access.groups import Groups
from rag_app.access.people import Keys, People
from rag_app.access.roles import Roles
from rag_app.access.sessions import Sessions
from rag_app.database.session import Database

if TYPE_CHECKING:
    from rag_app.settings import Settings


class Directory:
    """Organizations, users, keys, groups, roles. Neither LlamaIndex nor a model is imported for it.

    `sessions` of browsers are None if the pages are disabled.
    """

    def __init__(self, settings: "Settings", database: Database) -> None:
        self.settings, self.database = settings, database
        self.people, self.groups, self.keys, self.roles = (
            People(database),
            Groups(database),
            Keys(database),
            Roles(database),
        )
        pages = settings.pages
        lives = timedelta(hours=pages.session_hours), timedelta(minutes=pages.idle_minutes)
        self.sessions = None if pages.shown == "off" else Sessions(database, *lives)
