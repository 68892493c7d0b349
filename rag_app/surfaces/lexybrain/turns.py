"""A turn of a conversation in the database: what is kept and charged before a model thinks, and after.

Two short transactions, each all or nothing; between them nothing is held. Locks are taken in one order - the user,
reservations, counters, the thread, what is charged - so that two turns never wait for each other.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from uuid import uuid4

from rag_app.database.session import Database
from rag_app.domain.scope import Principal
from rag_app.surfaces.lexybrain import quotas, threads
from rag_app.surfaces.lexybrain.quotas import Accounts
from rag_app.surfaces.lexybrain.types import Begun, Outcome, Said


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

    async def begin(self, principal: Principal, said: Said) -> Begun:
        """Keep what the user says, in a thread of theirs or a new one, and reserve one message of their plan.

        Raises FeatureDisabled, CostCapReached, BudgetSpent, QuotaExceeded, NotFound (a thread that is not theirs),
        Forbidden (no user, or a plan that they may not choose), InvalidInput (a plan that there is not): then nothing
        remains, no thread and no charge.
        """
        user = principal.user or (await Accounts(self._database).of(principal)).user
        scope, message, reservation = replace(principal.scope(), user=user), uuid4(), uuid4()
        async with quotas.admitted(
            self._database,
            scope,
            plan=said.plan,
            cost_cap_cents=self._cost_cap_cents,
            token_budget=self._token_budget,
        ) as (session, account):
            await quotas.reserve(session, reservation, account, seconds=self._expires_s)
            # the versions of prompts are ours to say
            metadata = {key: value for key, value in said.meta.items() if key != "prompts"}
            thread = said.thread or await threads.add_thread(session, user, threads.title_of(said.text), metadata)
            kept = await threads.add_user_message(
                session, user, thread, message, said.text, said.capability, said.context
            )
        return Begun(kept, message, reservation, account, scope)

    async def finish(self, begun: Begun, outcome: Outcome) -> bool:
        """Keep the answer, and charge for it or not. False where the thread was deleted meanwhile.

        What it took is recorded then, too, and the charge stands. Of a user who was erased meanwhile only the cost is.
        It is eligible for training if the user consented when the turn began, and does still.
        """
        async with quotas.holding(self._database, begun.scope) as (session, training):
            if training is None:
                await quotas.spend(session, begun.scope, outcome)
                return False
            if not outcome.charged:
                await quotas.give_back(session, begun.reservation)
            elif not await quotas.settle(session, begun.reservation):
                await quotas.charge(session, begun.account)
            eligible = outcome.teaches and begun.account.training and training
            kept = await threads.add_answer(
                session, begun.scope.user, begun.thread.id, outcome, training_eligible=eligible
            )
            await quotas.record(session, begun.account, begun.scope, outcome)
        return kept

    async def give_back(
        self, begun: Begun, failures: Sequence[tuple[str, str]] = (), took: Outcome | None = None
    ) -> None:
        """Nothing came of it: no charge. The user's message is kept, and why it has no answer (kind, text) recorded.

        So is what it `took` nevertheless.
        """
        async with quotas.holding(self._database, begun.scope) as (session, training):
            if training is None:
                if took is not None:
                    await quotas.spend(session, begun.scope, took)
                return
            await quotas.give_back(session, begun.reservation)
            if failures:
                await quotas.record_failures(session, begun.account, begun.message, failures)
            if took is not None:
                await quotas.record(session, begun.account, begun.scope, took)
