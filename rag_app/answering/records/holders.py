"""Records that another one holds: "the terms on my bridal watchlist"."""

import re

from msgspec import Struct

from rag_app.answering.records.wording import stems, vocabulary_of
from rag_app.domain import FieldType
from rag_app.retrieval.index import IndexSpec


class Holder(Struct, frozen=True):
    """A question whose records are held by one of a `kind`, which is called as `said`; `rest` is the question without that.

    Those of the kind `held` that are meant have one of the values of its `field` as their `key`.
    """

    kind: str
    said: str
    rest: str
    field: str
    held: str
    key: str


def split_holder(text: str, spec: IndexSpec) -> Holder | None:
    """
    >>> shelves = IndexSpec.model_validate({
    ...     "name": "x", "source_types": ["shelf", "book"], "default_source_type": "book",
    ...     "fields": {"names": "tags", "name": {"type": "keyword", "kind": "book"}, "pages": {"type": "integer", "kind": "book"}},
    ...     "records": {
    ...         "book": {"words": ["book"], "source_types": ["book"]},
    ...         "shelf": {"words": ["shelf"], "source_types": ["shelf"], "holds": ["book"], "sentence": "{names}"}}})
    >>> found = split_holder("How many pages do the books on my top shelf have?", shelves)
    >>> found.said, found.rest, (found.kind, found.field, found.held, found.key)
    ('my top shelf', 'How many pages do the books have?', ('shelf', 'names', 'book', 'name'))
    """
    for name, kind in spec.records.items():
        words = "|".join(re.escape(word) for word in kind.words)
        apart = r"(?:(?!\b(?:on|in|of|from)\b)[^,;:.?!])"
        found = (
            re.search(rf"\s+(?:on|in|of|from)\s+({apart}{{0,60}}?\b(?:{words}))\b", text, re.I) if kind.holds else None
        )
        wanted = {stems(phrase) for phrase in kind.holds}
        held = [each for each, other in spec.records.items() if wanted & {*map(stems, other.words)}]
        told = " ".join(kind.sentence)
        fields = [each for each, type_ in spec.fields.items() if type_ is FieldType.TAGS and f"{{{each}}}" in told]
        if found is None or len(held) != 1 or len(fields) != 1:
            continue
        keys = [
            each
            for each, type_ in spec.fields.items()
            if type_ is FieldType.KEYWORD and vocabulary_of(spec, each).kind == held[0]
        ]
        if len(keys) == 1:
            rest = f"{text[: found.start()]}{text[found.end() :]}"
            return Holder(name, found[1], rest, fields[0], held[0], keys[0])
    return None
