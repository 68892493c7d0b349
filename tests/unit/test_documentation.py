"""What the documentation lists is what the code has."""

import re
from pathlib import Path

from rag_app.database.tables import all_tables
from rag_app.domain import errors
from rag_app.domain.answer import Refusal

DOCS = Path(__file__).parents[2] / "docs"
OF_A_USER = {"user_id", "owner_id", "actor_id", "settled_by"}


def test_every_table_with_data_of_a_user_is_told() -> None:
    tables = all_tables().sorted_tables
    personal = {each.name for each in tables if OF_A_USER & {column.name for column in each.columns}}
    for each in tables:  # in the order of their references
        if {key.column.table.name for key in each.foreign_keys} & personal:
            personal.add(each.name)
    stored, _, _ = (DOCS / "privacy.md").read_text("utf-8").partition("## Retention")
    assert len(personal) > 25 and personal - {*re.findall(r"`(\w+)`", stored)} == set()


def test_every_outcome_and_failure_that_is_counted_is_told() -> None:
    metrics = (DOCS / "telemetry.md").read_text("utf-8")
    outcomes, failures = (
        {*re.findall(r"`(\w+)`", line)}
        for name in ("rag_answers_total", "rag_model_failures_total")
        for line in metrics.splitlines()
        if line.startswith(f"| `{name}`")
    )
    kinds = {
        each.__name__
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.ModelFailed)
    }
    assert {*Refusal} <= outcomes and kinds <= failures
