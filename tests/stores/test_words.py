"""Words are PostgreSQL's for every store: postings in arrays, exact after any history, an organization's own frequencies."""

import math
import random
from collections import Counter
from collections.abc import Mapping
from uuid import UUID, uuid4

import asyncpg
import pytest
from llama_index.core.schema import TextNode

from rag_app.domain.answer import Mode
from rag_app.domain.scope import Scope
from rag_app.retrieval.fusion import Candidate, rank
from rag_app.retrieval.store import Search
from rag_app.stores import postgres_tables
from rag_app.stores.words import BLOCK
from tests.stores.conftest import SPEC, STORES, Stores, chunk, vector

QUERY = vector(1.0)
WORDS = [f"{first}{last}" for first in ("plum", "fig", "pear", "sloe") for last in ("tart", "jam", "gin")]
ASKED = "plumtart figjam figjam sloegin"
BOTH = pytest.mark.parametrize("stores", STORES[:2], indirect=True)


def straightforward(shared: Mapping[UUID, str], seen: Mapping[UUID, str]) -> dict[UUID, float]:
    """BM25 of what is seen, by frequencies and lengths of what every member sees."""
    rule = SPEC.bm25
    lengths = [len(text.split()) for text in shared.values()]
    df = Counter(word for text in shared.values() for word in {*text.split()})
    found = dict[UUID, float]()
    for id_, text in seen.items():
        words = text.split()
        for word, repeats in Counter(ASKED.split()).items():
            if tf := words.count(word):
                idf = math.log(1 + (len(shared) - df[word] + 0.5) / (df[word] + 0.5))
                norm = tf + rule.k1 * (1 - rule.b + rule.b * len(words) * len(lengths) / sum(lengths))
                found[id_] = found.get(id_, 0.0) + repeats * idf * tf * (rule.k1 + 1) / norm
    return found


def by_words(found: list[Candidate]) -> dict[UUID, float]:
    return {each.id: each.bm25 for each in found}


async def postings(owner_url: str, prefix: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(owner_url.replace("+asyncpg", ""))
    try:
        await connection.execute(f"ALTER TABLE {prefix}_words NO FORCE ROW LEVEL SECURITY")
        return list(
            await connection.fetch(
                "SELECT org_id, term, private_to, count(*) AS rows, sum(cardinality(postings)) AS postings,"
                f" min(cardinality(postings)) AS least, max(cardinality(postings)) AS most FROM {prefix}_words"
                " GROUP BY 1, 2, 3"
            )
        )
    finally:
        await connection.close()


@BOTH
async def test_after_any_history_scores_are_those_of_a_straightforward_bm25(
    stores: Stores, org: UUID, database_urls: tuple[str, str]
) -> None:
    """Sources come, are replaced and go; some are private. Terms have more chunks than a row takes."""
    chance, ann = random.Random(5), uuid4()
    team, hers = stores(Scope(frozenset({org}))), stores(Scope(frozenset({org}), ann))
    held: dict[UUID, list[TextNode]] = {}
    for version in range(12):
        changed = [*held][: 20 if version < 8 else 60] + [uuid4() for _ in range(25 if version < 8 else 0)]
        chance.shuffle(changed)
        nodes = []
        for source in changed:
            private = {"private_to": str(ann), "owner_id": str(ann)} if source.int % 7 == 0 else {}
            held[source] = [
                chunk(
                    org, " ".join(chance.choices(WORDS, k=chance.randint(3, 30))), vector(chance.random()),
                    source=source, position=position, version=str(version), **private,
                )
                for position in range(chance.randint(0, 3))
            ]  # fmt: skip
            nodes += held[source]
        await team.write(nodes, replacing=changed)
        if version % 3 == 2:
            gone = chance.sample([*held], len(held) // 3)
            await team.write([], replacing=gone)
            for source in gone:
                del held[source]
        every = [node for chunks in held.values() for node in chunks]
        texts = {UUID(node.node_id): node.get_content() for node in every}
        shared = {UUID(node.node_id): node.get_content() for node in every if "private_to" not in node.metadata}
        for store, seen in ((team, shared), (hers, texts)):
            expected = straightforward(shared, seen)
            found = await store.candidates(Search(QUERY, ASKED, (), Mode.TEXT, 1000))
            assert by_words(found) == pytest.approx(expected, rel=1e-9)
            ten = rank(await store.candidates(Search(QUERY, ASKED, (), Mode.TEXT, 10)), Mode.TEXT, SPEC.fusion)
            best = sorted(expected.values(), reverse=True)[:10]
            assert [each.bm25 for each in ten] == pytest.approx(best, rel=1e-9)
    for row in await postings(database_urls[0], team.prefix):  # type: ignore[attr-defined]
        assert row["least"] > 0 and row["most"] <= BLOCK
        assert row["rows"] <= 1 + 4 * row["postings"] / BLOCK, dict(row)
    await team.write([], replacing=[*held])
    assert await postings(database_urls[0], team.prefix) == []  # type: ignore[attr-defined]


@BOTH
async def test_a_term_of_many_chunks_is_in_full_rows_whatever_the_writes(
    stores: Stores, org: UUID, scope: Scope, database_urls: tuple[str, str]
) -> None:
    store, texts = stores(scope), dict[UUID, str]()
    for size in (1, 2, BLOCK - 4, 5, 3 * BLOCK, 1):
        nodes = [chunk(org, "figjam " * (n % 3 + 1), vector(0.1)) for n in range(size)]
        texts |= {UUID(node.node_id): node.get_content() for node in nodes}
        await store.async_add(nodes)
    ((rows, count),) = [(row["rows"], row["postings"]) for row in await postings(database_urls[0], store.prefix)]  # type: ignore[attr-defined]
    assert (rows, count) == (math.ceil(len(texts) / BLOCK), len(texts))
    found = await store.candidates(Search(QUERY, ASKED, (), Mode.TEXT, 1000))
    assert by_words(found) == pytest.approx(straightforward(texts, texts), rel=1e-9)


@BOTH
@pytest.mark.parametrize("way", ["exactly", "by sign"])
async def test_a_ranking_is_the_same_to_the_last_bit_after_a_neighbour_ingests(
    stores: Stores, org: UUID, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "by sign":
        monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 0)
    chance, other = random.Random(7), uuid4()
    ours = stores(Scope(frozenset({org})))

    def random_chunks(of: UUID, count: int) -> list[TextNode]:
        return [
            chunk(
                of,
                " ".join(chance.choices(WORDS, k=chance.randint(3, 30))),
                vector(chance.random(), chance.random() / 9),
            )
            for _ in range(count)
        ]

    nodes = random_chunks(org, 60)
    await ours.async_add(nodes)
    before = {mode: await ours.best(Search(QUERY, ASKED, (), mode, 20, 50)) for mode in Mode}
    for _ in range(3):
        nodes += random_chunks(other, 100)
        await stores(Scope(frozenset({other}))).async_add(nodes[-100:])
    for mode in Mode:
        assert await ours.best(Search(QUERY, ASKED, (), mode, 20, 50)) == before[mode]
    both = stores(Scope(frozenset({org, other})))
    found = by_words(await both.candidates(Search(QUERY, ASKED, (), Mode.TEXT, 1000)))
    texts = {UUID(node.node_id): node.get_content() for node in nodes}
    assert found == pytest.approx(straightforward(texts, texts), rel=1e-9)


@BOTH
async def test_words_are_found_in_each_language_that_an_organization_gets(stores: Stores, org: UUID) -> None:
    store, other = stores(Scope(frozenset({org}))), uuid4()
    texts = {"en": "The opening hours", "fr": "Les chevaux du magasin", "de": "Die Schuhe unserer Kinder"}
    asked, found = "opened cheval schuhe", list[UUID]()
    for lang, text in texts.items():
        node = chunk(org, text, vector(0.5), lang=lang)
        await store.write([node])
        found.append(UUID(node.node_id))
        assert {each.id for each in await store.candidates(Search(QUERY, asked, (), Mode.TEXT, 10))} == {*found}
    await stores(Scope(frozenset({other}))).write([chunk(other, "An opening", vector(0.5))])
    both = stores(Scope(frozenset({org, other})))
    assert len(await both.candidates(Search(QUERY, asked, (), Mode.TEXT, 10))) == 4
    await store.write([], replacing=[UUID(node.metadata["source_id"])])
    await store.write([node])
    assert {each.id for each in await store.candidates(Search(QUERY, asked, (), Mode.TEXT, 10))} == {*found}


@BOTH
async def test_what_is_private_counts_for_nobody(stores: Stores, org: UUID) -> None:
    """Where nothing else is there, too: it is found all the same."""
    ann = uuid4()
    team, hers = stores(Scope(frozenset({org}))), stores(Scope(frozenset({org}), ann))
    private = chunk(org, "figjam figjam plumtart", QUERY, private_to=str(ann), owner_id=str(ann))
    await team.async_add([private])
    assert await team.candidates(Search(QUERY, ASKED, (), Mode.TEXT, 10)) == []
    (alone,) = await hers.candidates(Search(QUERY, ASKED, (), Mode.TEXT, 10))
    assert alone.bm25 > 0
    await team.async_add([chunk(org, "figjam pearjam", QUERY)])
    before = await team.candidates(Search(QUERY, ASKED, (), Mode.TEXT, 10))
    await team.async_add(
        [chunk(org, "figjam", QUERY, private_to=str(ann), owner_id=str(ann), position=n) for n in range(30)]
    )
    assert await team.candidates(Search(QUERY, ASKED, (), Mode.TEXT, 10)) == before
    assert len(await hers.candidates(Search(QUERY, ASKED, (), Mode.TEXT, 100))) == 32


@BOTH
async def test_an_order_is_the_same_whatever_the_order_of_writing(
    stores: Stores, org: UUID, scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many chunks of the same words and vectors: more than are fused, and more than are compared by sign."""
    monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 0)
    monkeypatch.setattr(postgres_tables, "_MOST", 20)
    chance, source = random.Random(11), UUID(int=77)
    nodes = [
        chunk(org, text, vector(cosine), source=source, position=40 * place + n)
        for place, (text, cosine) in enumerate(
            [("plumtart pear", 0.1), ("plumtart figjam", 0.5), ("figjam fig", 0.9), ("sloe", 0.2)]
        )
        for n in range(40)
    ]
    asked = [(mode, depth) for mode in Mode for depth in (5, 10, 30)]
    found = []
    for _ in range(3):
        chance.shuffle(nodes)
        store = stores(scope)
        await store.write(nodes, replacing=[source])
        found.append([await store.best(Search(QUERY, ASKED, (), mode, 5, depth)) for mode, depth in asked])
        await store.write([], replacing=[source])
    assert found[0] == found[1] == found[2]
    for (mode, _), best in zip(asked, found[0], strict=True):
        text = {Mode.DENSE: "figjam fig", Mode.TEXT: "plumtart figjam"}.get(mode, "figjam fig")
        alike = sorted(UUID(node.node_id) for node in nodes if node.get_content() == text)
        assert [candidate.id for candidate, _ in best] == alike[:5]
