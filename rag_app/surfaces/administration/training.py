"""Examples to train models with: of users who consent now, and only of what they may still see. Nobody is named."""

import hashlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.application import Application
from rag_app.domain.errors import NotFound
from rag_app.retrieval.filters import epoch_seconds
from rag_app.surfaces.lexybrain.training import Collected, Consenting


class Export:
    """Counts what it gives: `withheld` were made from a source that is gone, or is no longer their user's to see.

    Raises NotFound for a capability there is not, InvalidInput for what is no date.
    """

    def __init__(self, application: Application, since: str | None, capability: str | None) -> None:
        if capability is not None and capability not in DESCRIPTIONS:
            raise NotFound("capability", capability, DESCRIPTIONS)
        self._app, self._capability = application, capability
        self._since = None if since is None else datetime.fromtimestamp(epoch_seconds("since", since), UTC)
        self.lessons = self.users = self.withheld = 0

    async def examples(
        self, consenting: list[Consenting], progress: Callable[[int], None]
    ) -> AsyncIterator[dict[str, Any]]:
        """Each read as its user. `progress` is told how many users are done."""
        for number, user in enumerate(consenting, 1):
            before = self.lessons
            pages = self._app.training.collected(user, since=self._since, capability=self._capability)
            async for page in pages:
                named = {source for lesson in page for source in lesson.sources}
                seen = await self._app.ledger.seen(user.scope, named) if named else set()
                for lesson in page:
                    if lesson.sources <= seen:
                        self.lessons += 1
                        yield _example(user, lesson)
                    else:
                        self.withheld += 1
            self.users += self.lessons > before
            progress(number)


def _example(user: Consenting, lesson: Collected) -> dict[str, Any]:
    """As fine-tuning tools read it.

    The pseudonym is the same in each export as long as the consent lasts. Whoever does not have the database cannot
    tell whose it is.
    """
    pseudonym = hashlib.sha256(f"{user.user}/{user.since.isoformat()}".encode()).hexdigest()[:16]
    return {
        "messages": [*lesson.prompt, {"role": "assistant", "content": lesson.text}],
        "metadata": {
            "user": pseudonym,
            "capability": lesson.capability,
            "model": lesson.model,
            "prompts": dict(lesson.prompts),
            "sources": len(lesson.context),
            "cited": sum(bool(shown["cited"]) for shown in lesson.context),
            "rating": lesson.rating,
            "created_at": lesson.created_at.isoformat(),
        },
    }
