"""Documents to sources, and sources to chunks."""

from datetime import UTC, date, datetime
from uuid import UUID

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from rag_app.documents.chunking import Chunker
from rag_app.documents.documents import Document, Passage
from rag_app.documents.metadata import Target, convert_metadata, to_source
from rag_app.domain.errors import InvalidInput, UnknownField
from rag_app.domain.source import Source, source_id
from rag_app.retrieval.index import Chunking, IndexSpec
from rag_app.retrieval.store import searchable_text
from rag_app.retrieval.text import tokens

ORG = UUID(int=7)
SPEC = IndexSpec(
    name="things", source_types=("doc", "faq"), default_source_type="doc", languages=("en", "fr"),
    fields={"author": "keyword", "n": "integer", "tags": "tags"},
)  # fmt: skip


def made(document: Document, path: str = "a/b.md", **target: object) -> Source:
    return to_source(document, path, "/somewhere/b.md", SPEC, Target(ORG, **target))  # type: ignore[arg-type]


def document(text: str = "Some text.", **about: object) -> Document:
    return Document(about.pop("name", ""), (Passage(text),), **about)  # type: ignore[arg-type]


def test_what_a_person_says_wins_over_what_a_format_says() -> None:
    one = document(derived={"author": "format", "date": "2026-01-01"}, metadata={"author": "front matter", "n": "3"})
    assert made(one).metadata == {"author": "front matter", "n": 3}
    assert made(one, metadata={"author": "command"}).metadata["author"] == "command"
    assert made(one).date == 1767225600.0


def test_a_field_is_computed_from_others_where_it_is_not_said() -> None:
    fields = {
        "demand": "number",
        "rivals": "number",
        "room": {"type": "number", "formula": "demand * (100 - rivals) / 100"},
    }
    spec = IndexSpec.model_validate(
        {"name": "things", "source_types": ["doc"], "default_source_type": "doc", "fields": fields}
    )

    def metadata(**said: object) -> dict[str, object]:
        return dict(to_source(document(metadata=said), "a.md", "/a.md", spec, Target(ORG)).metadata)

    assert metadata(demand=60, rivals=40) == {"demand": 60.0, "rivals": 40.0, "room": 36.0}
    assert metadata(demand=60, rivals=40, room=1)["room"] == 1.0 and "room" not in metadata(demand=60)
    for formula in ("open('x')", "demand ** 9", "demand if rivals else 1", "profit * 2"):
        with pytest.raises(ValueError, match="formula"):
            IndexSpec.model_validate(spec.model_dump() | {"vocabulary": {"room": {"formula": formula}}})


def test_what_is_computed_of_whole_numbers_is_whole() -> None:
    left = {"type": "integer", "formula": "due - paid"}
    fields = {"due": "integer", "paid": "integer", "left": left}
    told = {"name": "rents", "source_types": ["doc"], "default_source_type": "doc", "fields": fields}
    spec = IndexSpec.model_validate(told)
    source = to_source(document(metadata={"due": 900, "paid": 900}), "a.md", "/a.md", spec, Target(ORG))
    assert source.metadata == {"due": 900, "paid": 900, "left": 0}
    was_number = replace(source, metadata={"due": 900.0, "paid": 850.0})
    assert convert_metadata(was_number, spec).metadata == {"due": 900, "paid": 850, "left": 50}
    for wrong in (
        {"left": left | {"formula": "due / paid"}},
        {"paid": "number"},
        {"left": left | {"formula": "due - 0.5"}},
    ):
        with pytest.raises(ValueError, match=r'fields.left: the formula ".*" divides, or .* its type is "number"'):
            IndexSpec.model_validate(told | {"fields": fields | wrong})


def test_what_an_index_does_not_declare_is_left_if_derived_kept_if_said_and_refused_if_demanded() -> None:
    derived = made(document(derived={"producer": "x"}))
    assert (derived.metadata, derived.untyped) == ({}, {})
    said = made(
        document(metadata={"colour": "red", "sizes": [1, 2.5, {"no": None}], "since": date(2026, 1, 5), "n": "3"})
    )
    assert said.metadata == {"n": 3}
    assert said.untyped == {"colour": "red", "sizes": [1, 2.5, {"no": None}], "since": "2026-01-05"}
    assert said.version != made(document(metadata={"colour": "blue", "n": "3"})).version
    with pytest.raises(UnknownField, match="colour: unknown field; accepted: author, date, lang, n, source_type, tags"):
        made(document(metadata={"colour": "red"}, strict=("colour",)))
    with pytest.raises(UnknownField, match="colour"):
        made(document(), metadata={"colour": "red"})
    with pytest.raises(InvalidInput, match="more than 16,000 characters"):
        made(document(metadata={"colour": "r" * 20_000}))
    for metadata in (
        {"n": "three"},
        {"source_type": "letter"},
        {"date": "soon"},
        {"author": "a\0b"},
        {"author": ["a"]},
    ):
        with pytest.raises(InvalidInput):
            made(document(metadata=metadata))
    with pytest.raises(InvalidInput):
        made(document("a\0b"))


def test_a_time_is_kept_as_it_was_written_and_its_notation_is_no_other_version() -> None:
    one, other = (made(document(metadata={"date": each})) for each in ("2021-01-21T10:00:00-02:00", 1611230400))
    assert one.date == other.date and one.version == other.version
    assert (one.untyped, other.untyped) == ({"date": "2021-01-21T10:00:00-02:00"}, {"date": 1611230400})
    read = made(document(metadata={"date": datetime(2026, 1, 8, 9, 42, tzinfo=UTC)}))  # as YAML reads a timestamp
    assert read.untyped == {"date": "2026-01-08T09:42:00Z"}


def test_a_format_proposes_a_type_that_the_index_has() -> None:
    assert made(document(derived={"source_type": "email"})).source_type == made(document()).source_type
    assert made(document(derived={"source_type": "doc"}, metadata={"n": 1})).source_type == "doc"


def test_names_and_titles() -> None:
    assert made(document()).external_id == "a/b.md"
    assert made(document()).title == "b.md"
    assert made(document(name="x.csv")).external_id == "a/b.md#x.csv"
    own = document(external_id="mine", title="Title")
    assert (made(own).external_id, made(own).title) == ("mine", "Title")
    assert made(own).id == source_id(ORG, "things", "mine")


def test_tags_are_written_in_either_way() -> None:
    for tags in ("a, b", ["a", "b"]):
        assert made(document(metadata={"tags": tags})).metadata["tags"] == ["a", "b"]


def test_the_language_is_said_or_detected() -> None:
    french = "Les horaires d'ouverture du magasin sont affichés à l'entrée."
    assert made(document(french)).lang == "fr"
    assert made(document(french), metadata={"lang": "en"}).lang == "en"
    assert made(document("ok")).lang == "en"


def test_the_version_changes_with_what_a_reader_sees_and_with_nothing_else() -> None:
    same = made(document())
    assert to_source(document(), "a/b.md", "/elsewhere/b.md", SPEC, Target(ORG)).version == same.version
    for other in (
        made(document("Other text.")), made(document(metadata={"n": 1})), made(document(title="T")),
        made(document(), site_id=UUID(int=9)),
    ):  # fmt: skip
        assert other.version != same.version


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3000), max_size=4))
def test_chunks_fit_the_model_and_lose_no_word(texts: list[str]) -> None:
    source = made(document(), metadata={"title": "A title of some length " * 9})
    passages = [Passage(text, section=f"Section {number}", page=number + 1) for number, text in enumerate(texts)]
    nodes = Chunker(Chunking(size=64, overlap=8)).split(source, passages)
    assert [node.metadata["position"] for node in nodes] == list(range(len(nodes)))
    for passage in passages:
        mine = [node for node in nodes if node.metadata["page"] == passage.page]
        held = "".join("".join(node.get_content().split()) for node in mine)
        assert set("".join(passage.text.split())) <= set(held)
        assert all(node.metadata["section"] == passage.section for node in mine)


def test_a_chunk_with_its_heading_fits_the_window_of_the_embedding_model() -> None:
    text = " ".join(f"Sentence number {n} tells of the harbour and its boats." for n in range(200))
    nodes = Chunker(Chunking()).split(made(document(text)), [Passage(text, section="A section")])
    sizes = [len(tokens(searchable_text(node))) for node in nodes]
    assert max(sizes) <= 254 and len(nodes) > 5
    assert sum(sizes[:-1]) / len(sizes[:-1]) > 180


def test_rows_of_a_table_are_cut_between_rows() -> None:
    rows = [
        f"Flat: C-{n}; House: C; Rooms: {n % 4}; Space m2: {n}.5; Rent EUR: {n}2.75; Heating EUR: 6{n}.40"
        for n in range(30)
    ]
    nodes = Chunker(Chunking()).split(made(document("x")), [Passage("\n".join(rows), atomic=True)])
    assert len(nodes) > 2
    assert all(line in rows for node in nodes for line in node.get_content().split("\n"))
