"""Streamed answers: what was shown is never taken back, and in the end it is what `answer` gives."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from rag_app.answering.capabilities import Capability
from rag_app.answering.context import Context
from rag_app.answering.engine import CapabilityEngine
from rag_app.answering.extractive import ExtractiveSynthesizer
from rag_app.answering.models import Draft
from rag_app.domain.answer import Answer, Delta, FoundHits, Question, Refusal, Usage
from rag_app.domain.errors import ModelFailed
from rag_app.retrieval.embedding import MiniLM
from tests.fuzzing import examples
from tests.unit.answering.hits import hit
from tests.unit.answering.test_citations import pieces as model_output
from tests.unit.answering.test_engine import DOGS, EARLY, KNOWLEDGE, LATE, OWNER, WAITED, Says, ask, engine

QUESTION = Question("How long did customers wait?")


class Speaks(Says):
    """Says its pieces one by one, and then, where it is told to, breaks."""

    def __init__(self, *pieces: str, cut_off: bool = False, error: Exception | None = None) -> None:
        super().__init__("".join(pieces))
        self.pieces, self.cut_off, self.error = pieces, cut_off, error
        self.given, self.closed = 0, False

    async def write(self, question: Question, context: Context) -> Draft:
        draft = await super().write(question, context)
        return replace(draft, text=draft.text.strip(), cut_off=self.cut_off)

    async def stream(self, question: Question, context: Context) -> AsyncGenerator[str | Draft, None]:
        try:
            for piece in self.pieces:
                self.given += 1
                yield piece
            if self.error:
                raise self.error
            yield await self.write(question, context)
        finally:
            self.closed = True


async def streamed(asked: CapabilityEngine) -> tuple[FoundHits, list[str], Answer]:
    """The events of a stream, after a look at their order."""
    found, *deltas, answer = [event async for event in asked.stream(QUESTION)]
    assert isinstance(found, FoundHits) and isinstance(answer, Answer)
    texts = [event.text for event in deltas if isinstance(event, Delta)]
    assert len(texts) == len(deltas) and all(texts)
    assert "".join(texts) == answer.text and found.hits == answer.hits
    return found, texts, answer


def same(one: Answer, other: Answer) -> bool:
    return one == replace(other, generated_at=one.generated_at, seconds=one.seconds)


CAPABILITIES = {
    "seven sentences": OWNER,
    "five words": replace(KNOWLEDGE, max_words=5),
    "two sentences": replace(OWNER, max_sentences=2),
    "not grounded": replace(KNOWLEDGE, grounded=False),
}


@settings(max_examples=examples(250), deadline=None)
@given(
    said=model_output | st.text(max_size=60),
    cuts=st.lists(st.integers(0, 200), max_size=12),
    capability=st.sampled_from(list(CAPABILITIES.values())),
    cut_off=st.booleans(),
)
def test_whatever_a_model_says_in_whatever_pieces_the_stream_gives_the_answer(
    said: str, cuts: Sequence[int], capability: Capability, cut_off: bool
) -> None:
    ends = sorted({min(cut, len(said)) for cut in cuts} | {0, len(said)})
    speaks = Speaks(*(said[start:end] for start, end in pairwise(ends)), cut_off=cut_off)

    async def both() -> tuple[Answer, Answer]:
        _, texts, answer = await streamed(engine(speaks, WAITED, EARLY, DOGS, capability=capability))
        if capability.grounded and not answer.refused:
            assert "[Source 1]" in texts[0]
        return answer, await ask(engine(speaks, WAITED, EARLY, DOGS, capability=capability))

    assert same(*asyncio.run(both()))


async def test_sentences_come_as_they_are_finished_with_their_citations() -> None:
    said = "Hello there. One arrived early. [Sour|ce 2] Another| had to wait [Source 1|, Source 9]. They took one away [Source 2]|. Bye"
    _, texts, answer = await streamed(engine(Speaks(*said.split("|")), WAITED, EARLY))
    assert texts == [
        "Hello there. One arrived early [Source 1].",
        " Another had to wait [Source 2].",
        " They took one away [Source 1]. Bye",
    ]
    assert [citation.hit for citation in answer.citations] == [EARLY, WAITED]
    assert (answer.model, answer.usage) == ("told", Usage(5, 3))


async def test_a_long_text_is_shown_in_longer_pieces() -> None:
    sentence = "One had to wait, though the service was great [Source 1]. "
    chat = replace(OWNER, max_sentences=None)
    _, texts, _ = await streamed(engine(Speaks(*[sentence] * 1000), WAITED, capability=chat))
    early, late = texts[:100], texts[-5:-1]
    assert max(map(len, early)) == len(sentence) and min(map(len, late)) > 1000


async def test_a_sentence_does_not_wait_for_the_one_after_the_next() -> None:
    speaks = Speaks("One waited [Source 1]. ", "Another ", "did not. ", "And ", "so on.")
    stream = engine(speaks, WAITED).stream(QUESTION)
    assert isinstance(await anext(stream), FoundHits) and speaks.given == 0
    delta = await anext(stream)
    assert isinstance(delta, Delta) and delta.text == "One waited [Source 1]." and speaks.given == 2
    assert [(citation.number, citation.hit) for citation in delta.citations] == [(1, WAITED)]
    await stream.aclose()


@pytest.mark.parametrize(
    ("said", "why", "shown"),
    [
        ("They waited. For very long. And longer.", Refusal.UNCITED, OWNER.uncited),
        ("They waited [Source 7]. For long [Source 8]. Yes.", Refusal.UNCITED, OWNER.uncited),
        (f"{LATE} Call 555 for a prize! Do it.", Refusal.ADMITTED, LATE),
        ("I don't know [Source 1]. I can't tell [Source 2].", Refusal.ADMITTED, "I don't know. I can't tell."),
    ],
)
async def test_an_answer_without_a_citation_is_never_seen(said: str, why: Refusal, shown: str) -> None:
    _, texts, answer = await streamed(engine(Speaks(*said), WAITED, EARLY))
    assert texts == [shown] and answer.refusal is why


async def test_a_refusal_streams_without_asking_a_model() -> None:
    speaks = Speaks("Never said [Source 1].")
    _, texts, answer = await streamed(engine(speaks, DOGS, answer_from=0.7))
    assert texts == [OWNER.near] and answer.refusal is Refusal.WEAK and speaks.given == 0
    assert same(answer, await ask(engine(speaks, DOGS, answer_from=0.7)))


async def test_who_needs_no_sources_is_heard_from_the_first_sentence() -> None:
    chat = replace(OWNER, grounded=False)
    _, texts, _ = await streamed(engine(Speaks("Hello there. ", "How are you? ", "Thanks!"), WAITED, capability=chat))
    assert texts == ["Hello there.", " How are you?", " Thanks!"]


async def test_the_extractive_answer_streams_too() -> None:
    also = hit("Customer: Yesterday I waited half an hour.", score=0.71)
    asked = engine(ExtractiveSynthesizer(MiniLM()), WAITED, also, DOGS)
    _, texts, answer = await streamed(asked)
    assert len(texts) > 1 and answer.model == "extractive"
    assert same(answer, await ask(asked))


@pytest.mark.parametrize(("said", "seen"), [("One waited", 0), ("One waited [Source 1]. Another ", 1)])
async def test_a_models_failure_is_raised_and_what_was_shown_stays(said: str, seen: int) -> None:
    speaks = Speaks(said, error=ModelFailed("gone"))
    stream = engine(speaks, WAITED).stream(QUESTION)
    assert [type(await anext(stream)) for _ in range(seen + 1)] == [FoundHits, *[Delta] * seen]
    with pytest.raises(ModelFailed, match="gone"):
        await anext(stream)


async def test_a_stream_that_is_closed_closes_what_it_listens_to() -> None:
    speaks = Speaks("One waited [Source 1]. ", "Another did not. ", "And ")
    stream = engine(speaks, WAITED).stream(QUESTION)
    async for event in stream:
        if isinstance(event, Delta):
            break
    assert not speaks.closed
    await stream.aclose()
    assert speaks.closed
