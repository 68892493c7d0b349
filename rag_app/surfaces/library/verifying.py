"""Whether a text is supported by what was found: the check that answers of rag_app go through, for anybody's."""

from collections.abc import Sequence
from uuid import NAMESPACE_URL, UUID, uuid5

from llama_index.core.schema import BaseNode, NodeWithScore
from msgspec import Struct, structs

from rag_app.answering.citations import cite, number_citations, pieces_of
from rag_app.answering.context import Context, ContextBlock as PromptBlock, build_context
from rag_app.answering.verification.verdict import Ground, Verification
from rag_app.domain import Citation, Hit, InvalidInput, uuid_in
from rag_app.retrieval.foreign import NOWHERE, adopt
from rag_app.retrieval.hits import to_hit
from rag_app.surfaces.library.context import ContextBlock

FoundPassage = Hit | NodeWithScore | BaseNode | ContextBlock
"""What a text may cite: each is `[Source N]`, numbered from 1 in the order given."""


class Verified(Struct, frozen=True):
    """A text as far as its sources support it.

    `text` has the sentences that are kept, its citations numbered from 1 in order of first mention; `citations` are those,
    in that order, each with the passage that supports it. `removed` sentences were left out: no source supports them.
    `claims` are kept and cite a source. Without one the text answers nothing (`grounded` is false).

    >>> Verified("Open daily [Source 1].", (), claims=1, removed=0).grounded
    True
    """

    text: str
    citations: tuple[Citation, ...]
    claims: int
    removed: int

    @property
    def grounded(self) -> bool:
        """Whether a claim is left that a source supports.

        >>> Verified("I do not know.", (), claims=0, removed=0).grounded
        False
        """
        return self.claims > 0


def verify(answer_text: str, hits: Sequence[FoundPassage], question: str = "") -> Verified:
    """Check every sentence of a text, your own model's say, against the hits that it cites as `[Source N]`.

    `hits` are what your prompt showed, in its order: hits of `rag.search`, nodes of a LlamaIndex retriever, or blocks of
    `build_context_blocks`. A sentence stays where the sources it cites hold its figures, names and words; what is no claim
    (an admission, a greeting, advice) stays without. Names and figures of the `question` may be repeated. No model is
    called. Raises InvalidInput where there is nothing to cite.

    >>> from llama_index.core.schema import TextNode
    >>> shown = [TextNode(text="The warranty is two years."), TextNode(text="Returns are free for 30 days.")]
    >>> checked = verify("The warranty is two years [Source 1]. Returns cost $9 [Source 2].", shown)
    >>> checked.text, checked.removed, checked.citations[0].quote
    ('The warranty is two years [Source 1].', 1, 'The warranty is two years.')
    """
    if not hits:
        raise InvalidInput("hits", None, "is empty: pass the hits that the text was written from")
    context = Context(tuple(_block(number, each) for number, each in enumerate(hits, 1)))
    verification = Verification(Ground(context.blocks, question))
    verification.read(pieces_of(answer_text, len(context.blocks)))
    verification.end()
    checked = number_citations(verification.text)
    return Verified(checked.text, cite(checked, context), verification.claims, verification.removed)


def _block(number: int, found: FoundPassage) -> PromptBlock:
    match found:
        case Hit():
            hit = found
        case NodeWithScore():
            hit = to_hit(*adopt([found]))
        case BaseNode():
            hit = to_hit(*adopt([NodeWithScore(node=found, score=0.0)]))
        case ContextBlock():
            hit = Hit(
                chunk_id=_id(next(iter(found.chunk_ids), found.source_id)),
                source_id=_id(found.source_id),
                org_id=NOWHERE,
                text=found.text,
                score=2 * found.similarity - 1,
                title=found.title or found.source_id,
                source_type=found.source_type,
                lang="xx",
                position=0,
                uri=found.url,
            )
        case _:
            raise InvalidInput("hits", None, f"must be hits, nodes or context blocks, not {type(found).__name__}")
    blocks = build_context([hit], max_tokens=10**9, max_sources=1).blocks  # nothing is cut
    return structs.replace(blocks[0], number=number)


def _id(name: str) -> UUID:
    return uuid_in(name) or uuid5(NAMESPACE_URL, name)
