"""An organization's monthly budget of model tokens over all surfaces: checked before an answer, charged after it.

Months are those of the database's clock, in UTC.
"""

from datetime import datetime

from sqlalchemy import JSON, BigInteger, DateTime, bindparam, text

from rag_app.database.session import Database
from rag_app.domain import PUBLIC_ORGANIZATION, BudgetSpent, Scope, Usage

NOW = bindparam("now", type_=DateTime(timezone=True))
_MOMENT = "moment AS (SELECT coalesce(:now, statement_timestamp()) AS at)"
MONTH = f"{_MOMENT}, month AS (SELECT at, date_trunc('month', at AT TIME ZONE 'UTC') AS first FROM moment)"
RESETS = "extract(epoch FROM (first + interval '1 month') AT TIME ZONE 'UTC')::bigint"
OVER_BUDGET = text(
    f"""
    WITH {MONTH}
    SELECT json_build_array(coalesce(monthly_token_budget, :default), coalesce(tokens, 0), {RESETS}) AS budget
    FROM month, organizations LEFT JOIN organization_tokens ON org_id = id AND period = (SELECT first::date FROM month)
    WHERE id = ANY (:organizations) AND id <> :public
        AND coalesce(tokens, 0) >= coalesce(monthly_token_budget, :default)
    ORDER BY slug LIMIT 1
    """
).bindparams(NOW, bindparam("default", type_=BigInteger()), public=PUBLIC_ORGANIZATION)
ADD_TOKENS = """
    tokens AS (
        INSERT INTO organization_tokens AS stored (org_id, period, tokens)
        SELECT id, first::date, :tokens_in + CAST(:tokens_out AS bigint) FROM organizations, month
        WHERE id = ANY (:organizations) AND id <> :public AND :tokens_in + CAST(:tokens_out AS bigint) > 0 ORDER BY id
        ON CONFLICT (org_id, period) DO UPDATE SET tokens = stored.tokens + excluded.tokens
        RETURNING 1
    )"""
_SPEND = text(f"WITH {MONTH}, {ADD_TOKENS} SELECT count(*) FROM tokens")


class Budgets:
    """`default` is the budget of organizations without their own; None is unlimited."""

    def __init__(self, database: Database, default: int | None) -> None:
        self._database, self.default = database, default

    async def check(self, scope: Scope, now: datetime | None = None) -> None:
        """Raises BudgetSpent if one of the scope's organizations has used its tokens. The public one has no budget."""
        this = OVER_BUDGET.bindparams(organizations=list(scope.organizations), default=self.default, now=now)
        for [spent] in await self._database.read(scope, this.columns(budget=JSON())):
            raise BudgetSpent(*spent)

    async def spend(self, scope: Scope, usage: Usage, now: datetime | None = None) -> None:
        """Charge the usage to each of the scope's organizations, except the public one."""
        async with self._database.scoped(scope) as session:
            await session.execute(_SPEND, spending_parameters(scope, usage) | {"now": now})


def spending_parameters(scope: Scope, usage: Usage | None) -> dict[str, object]:
    """The parameters of `ADD_TOKENS`."""
    return {
        "organizations": list(scope.organizations),
        "public": PUBLIC_ORGANIZATION,
        "tokens_in": usage.input_tokens if usage else 0,
        "tokens_out": usage.output_tokens if usage else 0,
    }
