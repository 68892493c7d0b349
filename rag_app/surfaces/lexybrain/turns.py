"""A turn of a conversation in the database: what is kept and charged before a model thinks, and after.

Two short transactions, each all or nothing; between them nothing is held. Locks are taken in one order - reservations,
counters, the thread, what is charged - so that two turns never wait for each other.
"""

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from uuid import uuid4

from rag_app.database.session import Database
from rag_app.domain.errors import FeatureDisabled, Forbidden
from rag_app.domain.scope import Scope
from rag_app.surfaces.lexybrain import quotas, threads
from rag_app.surfaces.lexybrain.types import Account, Begun, Outcome, Said


class Turns:
    """Begins and ends turns. `cost_cap_cents` a day and `token_budget` of an organization's month: None is no bound.

    A turn that neither finishes nor is given back within `expires_s` seconds is not charged; its message is kept.
    Everything raises StoreFailed.
    """

    def __init__(
        self, database: Database, *, cost_cap_cents: Decimal | None, token_budget: int | None, expires_s: float = 900.0
    ) -> None:
        self._database, self._expires_s = database, expires_s
        self._cost_cap_cents, self._token_budget = cost_cap_cents, token_budget

    async def begin(self, scope: Scope, said: Said, account: Account) -> Begun:
        """Keep what the user says, in a thread of theirs or a new one, and reserve one message of their plan.

        Raises FeatureDisabled, CostCapReached, BudgetSpent, QuotaExceeded, NotFound (a thread that is not theirs),
        Forbidden (a user who was erased meanwhile): then nothing remains, no thread and no charge.
        """
        if not account.enabled:
            raise FeatureDisabled(f"the plan {account.plan} has no conversations")
        message, reservation = uuid4(), uuid4()
        async with self._database.scoped(_own(scope, account)) as session:
            if await quotas.consents(session, account.user) is None:
                raise Forbidden("the user of these credentials is gone")
            await quotas.check_cost_cap(session, self._cost_cap_cents)
            await quotas.check_budget(session, scope.organizations, self._token_budget)
            await quotas.reserve(session, reservation, account, seconds=self._expires_s)
            thread = await threads.ensure(
                session, account.user, said.thread, title=threads.title_of(said.text), metadata=_meta(said)
            )
            await threads.add_user_message(session, thread.id, message, said.text, said.capability, said.context)
        return Begun(thread, message, reservation, account)

    async def finish(self, scope: Scope, begun: Begun, outcome: Outcome) -> bool:
        """Keep the answer, and charge for it or not. False where the thread was deleted meanwhile.

        What it took is recorded then, too, and the charge stands. Of a user who was erased meanwhile only the cost is.
        It is eligible for training if the user consented when the turn began, and does still.
        """
        async with self._database.scoped(_own(scope, begun.account)) as session:
            training = await quotas.consents(session, begun.account.user)
            if training is None:
                await quotas.spend(session, scope, outcome)
                return False
            if not outcome.charged:
                await quotas.give_back(session, begun.reservation)
            elif not await quotas.settle(session, begun.reservation):
                await quotas.charge(session, begun.account)
            eligible = outcome.teaches and begun.account.training and training
            kept = await threads.add_answer(session, begun.thread.id, outcome, training_eligible=eligible)
            await quotas.record(session, begun.account, scope, outcome)
        return kept

    async def give_back(
        self, scope: Scope, begun: Begun, failures: Iterable[tuple[str, str]] = (), took: Outcome | None = None
    ) -> None:
        """Nothing came of it: no charge. The user's message is kept, and why it has no answer (kind, text) recorded.

        So is what it `took` nevertheless.
        """
        async with self._database.scoped(_own(scope, begun.account)) as session:
            if await quotas.consents(session, begun.account.user) is None:
                if took is not None:
                    await quotas.spend(session, scope, took)
                return
            await quotas.give_back(session, begun.reservation)
            await quotas.record_failures(session, begun.account, begun.message, failures)
            if took is not None:
                await quotas.record(session, begun.account, scope, took)


def _own(scope: Scope, account: Account) -> Scope:
    """A user whom the database came to know with this very request is not in the scope yet."""
    return replace(scope, user=account.user)


def _meta(said: Said) -> dict[str, object]:
    """What the client says of itself; the versions of prompts are ours to say."""
    return {key: value for key, value in said.meta.items() if key != "prompts"}
