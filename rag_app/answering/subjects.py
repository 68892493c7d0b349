"""Which sentences are about another subject than the one that a question names.

Only sources of one type are compared: what holds for all products may stand in a policy that names none. Where one has a
name of the question, another without any of its names does not answer. Of sources that are called alike ("Keyword: linen
apron", "Keyword: bread bag"), those that the question names answer it, and the others only with a sentence that names the
same. A message of a word or two ("What does it cost?") after one that nothing answered is about that one: a source
without any word of it does not answer.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rag_app.answering.citations import content_words
from rag_app.answering.context import Context, ContextBlock
from rag_app.answering.kinds import has_name, names_in
from rag_app.answering.passages import Passage
from rag_app.answering.refusals import language_of
from rag_app.domain import Question

LITTLE = 2
"""Words that carry meaning: a message that says no more is about the one before it."""


def find_strangers(question: Question, ranked: Sequence[Passage], context: Context) -> NDArray[np.bool_]:
    """Whether each passage is about another subject."""
    nameless = _find_nameless(question, context.blocks) | _find_unrelated(question, context.blocks)
    named = _find_named(question, context.blocks)
    return np.asarray(
        [
            each.block in nameless or any(_is_other(each, context.blocks, block, words) for block, words in named)
            for each in ranked
        ],
        dtype=bool,
    )


def _find_nameless(question: Question, blocks: Sequence[ContextBlock]) -> set[int]:
    """The blocks without any of the question's names, where one of the same type has one. German writes all nouns like
    names."""
    if language_of(question.text) == "de":
        return set()
    texts = [_text(block).casefold() for block in blocks]
    names = names_in(_wanted_text(question))
    having = {n for n, text in enumerate(texts) if any(has_name(text, name) for name in names)}
    types = {_type(blocks[n]) for n in having}
    return {n for n, block in enumerate(blocks) if n not in having and _type(block) in types}


def _find_unrelated(question: Question, blocks: Sequence[ContextBlock]) -> set[int]:
    """The blocks without a word of what was said before, for a message that says little by itself. Where that was answered,
    its sources are known, and they go on about it in words of their own."""
    said = content_words(question.text)
    if not question.leans or question.earlier or len(said) > LITTLE:
        return set()
    before = content_words(question.searched or "") - said
    return {n for n, block in enumerate(blocks) if before and not before & content_words(_text(block))}


def _find_named(question: Question, blocks: Sequence[ContextBlock]) -> list[tuple[int, frozenset[str]]]:
    """The blocks whose title the question names by half of its words or more, with these words.

    A message that names one is about that; else what it leans on is.
    """
    for text in dict.fromkeys((question.text, _wanted_text(question))):
        wanted = content_words(text)
        titles = [content_words(block.title) for block in blocks]
        named = [(n, title & wanted) for n, title in enumerate(titles) if len(title & wanted) * 2 >= max(1, len(title))]
        if named:
            return named
    return []


def _is_other(passage: Passage, blocks: Sequence[ContextBlock], named: int, words: frozenset[str]) -> bool:
    """Whether a passage is of a source that is called like a named one, and has less than half of the name."""
    one, other = blocks[named], blocks[passage.block]
    if passage.block == named or _type(one) != _type(other):
        return False
    titles = content_words(one.title), content_words(other.title)
    said = titles[1] | content_words(f"{passage.lead} {passage.text}")
    return bool((titles[0] & titles[1]) - words) and len(said & words) * 2 < len(words)


def _wanted_text(question: Question) -> str:
    return question.searched if question.searched and question.leans else question.text


def _type(block: ContextBlock) -> str:
    return block.hits[0].source_type if block.hits else ""


def _text(block: ContextBlock) -> str:
    return " ".join(chain((block.header, block.body), (hit.title for hit in block.hits)))
