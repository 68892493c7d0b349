"""Which sentences are about another subject than the one that a question names.

Only sources of one type are compared: what holds for all products may stand in a policy that names none. Where one has a
name of the question, another without any of its names does not answer.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rag_app.answering.context import ContextBlock
from rag_app.answering.kinds import has_name, names_in
from rag_app.answering.passages import Passage
from rag_app.answering.refusals import language_of
from rag_app.domain import Question


def find_strangers(question: Question, ranked: Sequence[Passage], blocks: Sequence[ContextBlock]) -> NDArray[np.bool_]:
    """Whether each passage is of a block without any of the question's names, where one of the same type has one.

    German writes all nouns like names.
    """
    wanted = question.searched if question.searched and question.leans else question.text
    names = names_in(wanted) if language_of(question.text) != "de" else set()
    texts = [" ".join((each.header, each.body, *(hit.title for hit in each.hits))).casefold() for each in blocks]
    having = {n for n, text in enumerate(texts) if any(has_name(text, name) for name in names)}
    types = [block.hits[0].source_type if block.hits else "" for block in blocks]
    named = {types[n] for n in having}
    strange = [n not in having and each in named for n, each in enumerate(types)]
    return np.asarray([strange[each.block] for each in ranked], dtype=bool)
