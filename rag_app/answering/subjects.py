"""Which sentences are about another subject than the one that a question names.

Only sources of one type are compared: what holds for all products may stand in a policy that names none. Where one has a
name of the question, another without any of its names does not answer.
"""

import re

import numpy as np
from numpy.typing import NDArray

from rag_app.answering.citations import content_words
from rag_app.answering.context import Context
from rag_app.answering.kinds import has_name, names_in
from rag_app.answering.passages import Ranking
from rag_app.answering.refusals import language_of
from rag_app.domain import Question

POINTS_BACK = re.compile(r"\b(?:it|its|they|their|he|his|she|her|this|these|those|such)\b", re.IGNORECASE)
LITTLE = 1
"""Words that carry meaning: a part of a question with no more is read with what is said before it."""


def find_strangers(question: Question, ranking: Ranking, context: Context) -> NDArray[np.bool_]:
    """Whether each passage is about another subject than each part of a question. A part that points back or says little
    has that of the whole, any other its own: "When is Ann in, and on what date is the exam?" asks about no exam of Ann's.

    A passage is where its block has none of the names, and another block of the same type has one. German writes all nouns
    like names.
    """
    several = len(ranking.asked) > 2 and not question.leans
    types = [block.hits[0].source_type if block.hits else "" for block in context.blocks]
    texts = [
        " ".join((each.header, each.body, *(hit.title for hit in each.hits))).casefold() for each in context.blocks
    ]

    def stands_alone(part: str) -> bool:
        return several and not POINTS_BACK.search(part) and len(content_words(part)) > LITTLE

    def compare_blocks(text: str) -> list[bool]:
        wanted = question.searched if question.searched and question.leans else text
        names = names_in(wanted) if language_of(text) != "de" else set()
        having = {n for n, said in enumerate(texts) if any(has_name(said, name) for name in names)}
        named = {types[n] for n in having}
        return [n not in having and each in named for n, each in enumerate(types)]

    asked = [part if stands_alone(part) else question.text for part in ranking.asked[1:]]
    strange = {text: compare_blocks(text) for text in dict.fromkeys(asked)}
    return np.asarray([[strange[text][each.block] for each in ranking.ranked] for text in asked], dtype=bool)
