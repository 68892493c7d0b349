"""An answer, as a model could have learned it: what it was told, and what it should say to that."""

import re
from uuid import UUID

from rag_app.answering.prompts import Prompt
from rag_app.answering.synthesizers import messages_of
from rag_app.domain.answer import Answer, Question
from rag_app.retrieval.index import IndexSpec
from rag_app.surfaces.lexybrain.lessons import Lesson

_MARKER = re.compile(r"\[Source ([0-9]+)\]")


def lesson(
    prompt: Prompt, capability: str, message: UUID, told: tuple[UUID, ...], question: Question, answer: Answer,
    spec: IndexSpec,
) -> Lesson:  # fmt: skip
    """`told`: the messages that the prompt was made from. The prompt is that of the model, to the letter."""
    context = "\n\n".join(shown.text for shown in answer.shown)
    number = {shown.cited: place for place, shown in enumerate(answer.shown, 1) if shown.cited is not None}
    return Lesson(
        message=message,
        told=told,
        capability=capability,
        model=answer.model or "",
        prompt=[
            {"role": each.role.value, "content": each.content or ""} for each in messages_of(prompt, question, context)
        ],
        context=[
            {
                "id": str(shown.source),
                "type": spec.shown(shown.source_type),
                "label": shown.label,
                "text": shown.text,
                "cited": shown.cited is not None,
            }
            for shown in answer.shown
        ],
        # an answer numbers its sources in its own order
        text=_MARKER.sub(lambda found: f"[Source {number[int(found[1])]}]", answer.text),
    )
