"""The tables of a generation in PostgreSQL and the statements on them. A statement begins with the scope and chooses its
method by the scope's size.

docs/adr/0003-postgres-layout.md and docs/adr/0030-signs-with-two-bits-of-the-question.md give the reasons for the
tables and for the three search methods, and their costs.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from math import ceil
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from asyncpg import BitString
from cachetools import LRUCache
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from rag_app.domain import FieldType, Filters, Mode, Scope
from rag_app.retrieval.filters import translate
from rag_app.retrieval.index import BASE_FIELDS, IndexSpec
from rag_app.retrieval.store import Search
from rag_app.stores import words
from rag_app.stores.signs import READ, VERSION, Proposal, Signs

_SQL_TYPES = {
    FieldType.KEYWORD: "text",
    FieldType.UUID: "uuid",
    FieldType.INTEGER: "bigint",
    FieldType.NUMBER: "double precision",
    FieldType.BOOLEAN: "boolean",
    FieldType.TIME: "double precision",
    FieldType.TAGS: "text[]",
}
_COMPARISONS = {
    FilterOperator.EQ: "{name} = {value}",
    FilterOperator.NE: "{name} <> {value}",
    FilterOperator.LT: "{name} < {value}",
    FilterOperator.LTE: "{name} <= {value}",
    FilterOperator.GT: "{name} > {value}",
    FilterOperator.GTE: "{name} >= {value}",
    FilterOperator.IN: "{name} = ANY({value})",
    FilterOperator.NIN: "{name} <> ALL({value})",
    FilterOperator.CONTAINS: "{value} = ANY({name})",
    FilterOperator.ANY: "{name} && {value}",
    FilterOperator.ALL: "{name} @> {value}",
}
# NOT is `IS NOT TRUE`, which turns the NULL of a missing field into TRUE
_JOINS: Mapping[FilterCondition, Callable[[list[str]], str]] = {
    FilterCondition.NOT: lambda each: f"(({' OR '.join(each)}) IS NOT TRUE)",
    FilterCondition.OR: lambda each: f"({' OR '.join(each)})",
    FilterCondition.AND: lambda each: f"({' AND '.join(each)})",
}
_LARGEST_PLAIN_VECTOR = 1900  # dimensions that fit a page together with the row
LARGEST_GRAPH = 4000  # dimensions up to which there is a graph: half-precise vectors of that many fit a page
# Bytes up to which a keyword is in the index of its field: more than names and codes have, and far from the third of a
# page that PostgreSQL takes as a key at most.
_LONGEST_INDEXED = 400
_ORGANIZATIONS = "org_id = ANY ((SELECT rag_organizations())::uuid[])"
_READERS = "(private_to IS NULL OR private_to = ANY ((SELECT rag_readers())::uuid[]) OR (SELECT rag_operator()))"
_OF_ALL = "totals", "terms", "postings"  # not of one organization; the last two are of earlier releases

# Up to so many numbers in the vectors of a scope's organizations all of them are compared.
_EXACT_NUMBERS = 5_000 * 384
# How many of the nearest by sign are compared, at most; how much farther than the best, in roots of the dimension.
_MOST, _MARGIN = 800, 1.8
# An organization with more chunks is in the graph.
GRAPHED = 25_000
# From which square of a scope's chunks in the graph, in chunks of the graph, a walk is shorter than a scan.
_LARGE = 8_000
# Times what must be sure that a walk must find: half precision and a walk's order are only nearly right. Fewer say that
# it met too few rows of the scope to have met the nearest, as where most of an organization is private to others.
_AHEAD = 4


def create_statements(spec: IndexSpec, generation: str, dimension: int) -> str:
    """The DDL of the tables of a generation with its vectors in PostgreSQL.

    The columns that a scan reads come first, because PostgreSQL decodes a row from the left.
    """
    kinds = {"site_id": FieldType.UUID} | {
        column(name): kind for name, kind in spec.all_fields.items() if name != "org_id"
    }
    function = _FUNCTIONS.get(spec.name)
    return _TABLES.format(
        words=_protect_tables(words.TABLES, generation, words.NAMES),
        t=generation,
        dimension=int(dimension),
        filtered=_columns(spec),
        storage="PLAIN" if dimension <= _LARGEST_PLAIN_VECTOR else "EXTERNAL",
        graph=_GRAPH.format(t=generation) if dimension <= LARGEST_GRAPH else "",
        indexes="".join(
            f"CREATE INDEX ON {generation}_signs (org_id, {name})"
            f"{f' WHERE octet_length({name}) <= {_LONGEST_INDEXED}' if kind is FieldType.KEYWORD else ''};"
            for name, kind in kinds.items()
            if kind is not FieldType.TAGS
        ),
        policies=_policies(generation, ("vectors", "signs", "graph")),
        callers=_CALLERS.format(t=generation, function=function) if function else "",
    )


def create_fields(spec: IndexSpec, generation: str) -> str:
    """The DDL of the tables of a generation whose vectors are elsewhere."""
    return _protect_tables(f"{words.TABLES}{_FIELDS}", generation, (*words.NAMES, "fields"), filtered=_columns(spec))


def create_vector_fields(spec: IndexSpec, generation: str, dimension: int) -> str:
    """The same with vectors beside the fields, for a store that only proposes chunks."""
    storage = "PLAIN" if dimension <= _LARGEST_PLAIN_VECTOR else "EXTERNAL"
    return f"""{create_fields(spec, generation)}
        ALTER TABLE {generation}_fields ADD COLUMN embedding vector({int(dimension)}) NOT NULL;
        ALTER TABLE {generation}_fields ALTER embedding SET STORAGE {storage};"""


def drop_statements(generation: str) -> str:
    """The DDL that drops a generation's tables, including those of an earlier layout."""
    names = (
        "vectors",
        "fields",
        "signs",
        "graph",
        *_OF_ALL,
        *reversed(words.NAMES),
    )  # vectors and fields refer to chunks
    return "".join(f"DROP TABLE IF EXISTS {generation}_{name};" for name in names)


def _protect_tables(tables: str, generation: str, names: Sequence[str], **parts: str) -> str:
    return tables.format(t=generation, **parts) + _policies(generation, names)


def _policies(generation: str, names: Sequence[str]) -> str:
    return "".join(
        _POLICY.format(
            t=generation, name=name, using=_ORGANIZATIONS if name == "sizes" else f"{_ORGANIZATIONS} AND {_READERS}"
        )
        for name in names
    )


def _columns(spec: IndexSpec) -> str:
    fields = "".join(f", {column(name)} {_SQL_TYPES[kind]}" for name, kind in spec.fields.items())
    return f"site_id uuid, source_id uuid NOT NULL, source_type text NOT NULL, lang text NOT NULL, date double precision{fields}"


def column(field: str) -> str:
    """What stores call a filter field: the column in `vectors` and `signs`, the key in Qdrant's payload."""
    return field if field in BASE_FIELDS else f"x_{field}"


def insert_fields(table: str, spec: IndexSpec, vectors: bool) -> str:
    """The statement that inserts rows with the filter fields, from one array for each column (`field_columns`)."""
    columns = field_columns(spec, vectors)
    inputs = (f"${place}::{_ARRAYS.get(kind, kind)}[]" for place, kind in enumerate(columns.values(), 1))
    values = (_TAGS.format(name=name) if kind == "text[]" else name for name, kind in columns.items())
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} "
        f"FROM unnest({', '.join(inputs)}) AS input ({', '.join(columns)})"
    )


def field_columns(spec: IndexSpec, vectors: bool) -> dict[str, str]:
    """The columns of `vectors`, or of `fields`, with their types: the chunk, who sees it, the filter fields, its vector."""
    own = {"no": "bigint", "id": "uuid", "site_id": "uuid", "private_to": "uuid"}
    fields = {column(name): _SQL_TYPES[kind] for name, kind in spec.all_fields.items()}
    return own | fields | ({"embedding": "vector"} if vectors else {})


def insert_signs(generation: str, spec: IndexSpec, dimension: int) -> str:
    """`insert_fields` of `vectors`, which also inserts their signs."""
    filters = ", ".join(name for name in field_columns(spec, False) if name not in ("no", "id", "org_id"))
    return f"""WITH stored AS ({insert_fields(f"{generation}_vectors", spec, vectors=True)} RETURNING *)
        INSERT INTO {generation}_signs (org_id, no, signs, {filters})
        SELECT org_id, no, binary_quantize(embedding)::bit({dimension}), {filters} FROM stored"""


# PostgreSQL has no arrays of arrays of different length: the tags of a chunk come as JSON.
_ARRAYS = {"text[]": "text"}
_TAGS = "CASE WHEN {name} IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text({name}::jsonb)) END"

_TABLES = """
        {words}
        CREATE TABLE {t}_vectors (no bigint PRIMARY KEY REFERENCES {t}_chunks ON DELETE CASCADE, id uuid NOT NULL,
            org_id uuid NOT NULL, embedding vector({dimension}) NOT NULL, private_to uuid, {filtered});
        ALTER TABLE {t}_vectors ALTER embedding SET STORAGE {storage};
        CREATE INDEX ON {t}_vectors (org_id, no);
        CREATE TABLE {t}_signs (org_id uuid, no bigint, signs bit({dimension}) NOT NULL, private_to uuid, {filtered},
            PRIMARY KEY (org_id, no));
        {indexes}
        CREATE TABLE {t}_graph (org_id uuid, no bigint, private_to uuid, embedding halfvec({dimension}) NOT NULL,
            PRIMARY KEY (org_id, no));
        {graph}
        CREATE TABLE {t}_totals (chunks bigint NOT NULL);
        INSERT INTO {t}_totals VALUES (0);
        {policies}
        {callers}"""

_FIELDS = """
        CREATE TABLE {t}_fields (no bigint PRIMARY KEY REFERENCES {t}_chunks ON DELETE CASCADE, id uuid NOT NULL,
            org_id uuid NOT NULL, private_to uuid, {filtered});
        CREATE INDEX ON {t}_fields (org_id);"""

# 128 candidates for each chunk's neighbours and not 64: recall .98 instead of .96 (docs/adr/0003)
_GRAPH = "CREATE INDEX ON {t}_graph USING hnsw (embedding halfvec_cosine_ops) WITH (ef_construction = 128);"

GRAPH_INDEX = """
    SELECT i.indexrelid::regclass FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
    WHERE i.indrelid = to_regclass({graph}) AND a.amname = 'hnsw' AND i.indisvalid"""
"""Of a generation's graph, whatever its name."""


def drop_graph_index(generation: str) -> str:
    """The DDL that lets the graph be filled without being connected."""
    return f"""DO $$ DECLARE made regclass; BEGIN
        FOR made IN {GRAPH_INDEX.format(graph=f"'{generation}_graph'")} LOOP EXECUTE format('DROP INDEX %s', made); END LOOP;
        END $$"""


def build_graph_index(generation: str, workers: int) -> str:
    """The DDL that connects the graph at once, in memory; `workers` of PostgreSQL share it in /dev/shm."""
    return f"""SET LOCAL maintenance_work_mem = '512MB'; SET LOCAL max_parallel_maintenance_workers = {workers};
        {_GRAPH.format(t=generation)}"""


_POLICY = """
        ALTER TABLE {t}_{name} ENABLE ROW LEVEL SECURITY; ALTER TABLE {t}_{name} FORCE ROW LEVEL SECURITY;
        CREATE POLICY tenant ON {t}_{name} USING ({using});"""

# The SQL functions of migration 0004, by the index that they search.
_FUNCTIONS = {"org_knowledge": "rag_match", "store_catalogue": "match_embeddings", "marketplace": "search_rag_context"}

_CALLERS = """
        DO $$ DECLARE caller regrole; BEGIN  -- who may call the function needs what it reads
            FOR caller IN SELECT grantee FROM pg_proc, aclexplode(proacl)
                          WHERE pg_proc.oid = to_regproc('{function}') AND grantee <> 0 LOOP
                EXECUTE format('GRANT SELECT ON {t}_chunks, {t}_vectors TO %s', caller);
            END LOOP; END $$;"""


# `near(no)` is what is compared by cosine: what a walk found, and the nearest by sign of whoever was not walked for.
_WALK = """sizes AS MATERIALIZED (
                SELECT p.org_id, p.chunks, {may_walk} AND p.chunks > {graphed}
                    AND (SELECT max(v.no) FROM {t}_graph v WHERE v.org_id = p.org_id)
                        >= (SELECT max(v.no) FROM {t}_vectors v WHERE v.org_id = p.org_id) AS graphed
                FROM {t}_sizes p WHERE p.org_id = ANY({organizations})),
            size AS MATERIALIZED (
                SELECT p.chunks, p.largest, p.chunks <= {small} AS small,
                    CASE WHEN p.chunks > {small} AND p.graphed * p.graphed > {larger} * n.chunks THEN p.walked END AS walked
                FROM (SELECT coalesce(sum(chunks), 0)::bigint AS chunks, coalesce(max(chunks), 0) AS largest,
                          sum(chunks) FILTER (WHERE graphed) AS graphed,
                          array_agg(org_id) FILTER (WHERE graphed) AS walked
                      FROM sizes) p CROSS JOIN {t}_totals n),
            walked AS MATERIALIZED (
                SELECT v.no FROM {t}_graph v
                WHERE (SELECT walked IS NOT NULL FROM size) AND v.org_id = ANY ((SELECT walked FROM size)::uuid[])
                    AND (v.private_to IS NULL OR v.private_to = ANY({readers}))
                ORDER BY v.embedding <=> {embedding}::{half} LIMIT {ahead}),
            enough AS MATERIALIZED (SELECT count(*) >= {ahead} AS enough FROM walked),
            scanned AS MATERIALIZED (
                SELECT coalesce(array_agg(org_id), '{{}}') AS organizations FROM sizes
                WHERE NOT (SELECT small FROM size) AND NOT (graphed IS TRUE AND (SELECT enough FROM enough))),"""
_WALK_ROWS = "SELECT no FROM walked WHERE (SELECT enough FROM enough) UNION ALL"

# What is remembered is taken if it is not outdated; what only some members may see is looked up beside it.
_MEMORY_STATE = """remembered AS MATERIALIZED (
                SELECT {version} <> {known} AS outdated, {version} <> {known} OR sum(p.chunks) > sum(p.shared) AS scan
                FROM {t}_sizes p WHERE p.org_id = ANY({organizations})),"""
_MEMORY_ROWS = "SELECT unnest({far}) AS far WHERE NOT (SELECT outdated FROM remembered) UNION ALL"
_UNREMEMBERED_ROWS = (
    "AND (SELECT scan FROM remembered) AND (v.private_to IS NOT NULL OR (SELECT outdated FROM remembered))"
)

_SCAN = """{walk}
            signs AS MATERIALIZED (
                SELECT far FROM ({proposed}
                    SELECT {far} * {place} + v.no AS far FROM {t}_signs v WHERE {scanned} AND {visible} {left}) each
                ORDER BY far LIMIT {most} + 1),
            reach AS MATERIALIZED (
                SELECT border, least(border, {place} + {place} * floor(
                        greatest(coalesce(last, 'infinity'), sure + {margin}) / {place})) AS reach, last >= border AS tied
                FROM (SELECT {place} * floor((SELECT far FROM signs OFFSET {most} LIMIT 1) / {place}) AS border,
                          (SELECT far FROM signs OFFSET greatest({limit} - 1, 0) LIMIT 1) AS last,
                          (SELECT far FROM signs OFFSET {sure} LIMIT 1) AS sure OFFSET 0) at),
            near AS MATERIALIZED (
                {walked} SELECT far::bigint & ({place} - 1) AS no FROM signs WHERE far < (SELECT reach FROM reach)
                UNION ALL SELECT v.no FROM {t}_signs v
                WHERE (SELECT tied FROM reach) AND {scanned} AND {visible}
                    AND {far} * {place} = (SELECT border FROM reach)),"""

_DENSE = """{near} dense AS MATERIALIZED (
                SELECT no, id, distance FROM ({compared}) each ORDER BY distance, id LIMIT {limit})"""

# The chunks of `near` that share a term, and behind them the best, in one pass.
_SHARED_TERMS = """,
            met AS MATERIALIZED (
                SELECT no, bm25 FROM lexical
                ORDER BY CASE WHEN (no IN (SELECT no FROM {near})) IS TRUE THEN 'infinity' ELSE bm25 END DESC
                LIMIT {limit} + 1 + (SELECT count(*) FROM {near}))"""

# Of equal scores at the end those with the least ids, whatever the order of writing: all of them are looked up. They are
# added up once more for that, which is rarely needed and costs less than to keep all scores.
_BEST = """,
            first AS MATERIALIZED (SELECT no, bm25 FROM {met} ORDER BY bm25 DESC LIMIT {limit} + 1),
            cut AS MATERIALIZED (
                SELECT coalesce(scores[{limit} + 1], 0) AS next, scores[{limit}] = scores[{limit} + 1] AS tied
                FROM (SELECT array_agg(bm25) AS scores FROM first) at),
            top AS MATERIALIZED (
                SELECT no, bm25 FROM first WHERE bm25 > (SELECT next FROM cut)
                UNION ALL SELECT no, bm25 FROM lexical
                WHERE (SELECT tied FROM cut) AND bm25 = (SELECT next FROM cut)),
            best AS MATERIALIZED (
                SELECT v.no, v.id, {cosine} AS cosine, top.bm25 FROM top {looked_up}
                ORDER BY top.bm25 DESC, v.id LIMIT {limit})"""


class Method(Enum):
    """How the nearest chunks are found. It follows from how many chunks the scope's organizations have."""

    ANY = auto()
    """That one of the others, or the graph, that fits: the statement counts. The longest, for whoever does not know."""
    EXACT = auto()
    """All vectors are compared."""
    SIGNS = auto()
    """The vectors with the nearest signs are compared."""
    REMEMBERED = auto()
    """The same, where this process remembers the signs."""


# What the rows of a statement tell beside chunks, by its method.
_COLUMNS_BESIDE = {
    Method.ANY: {"chunks": "size", "largest": "size"},
    Method.REMEMBERED: {"outdated": "remembered"},
}


def choose_method(size: tuple[int, int] | None, dimension: int, filtered: bool) -> Method:
    """By the chunks of a scope and of its largest organization, if they are known. A graph knows no filters."""
    if size is None:
        return Method.ANY
    chunks, largest = size
    if chunks <= _EXACT_NUMBERS // dimension:
        return Method.EXACT
    return Method.SIGNS if filtered or dimension > LARGEST_GRAPH or largest <= GRAPHED else Method.ANY


def is_filtered(asked: Search, scope: Scope) -> bool:
    return bool(asked.filters) or scope.site is not None


class Query:
    """SQL under construction: every value is bound, every column comes from the index spec.

    `t` is the prefix of the generation's table names, `fields` the table with the filter fields.
    """

    def __init__(self, spec: IndexSpec, scope: Scope, t: str, fields: str, languages: Sequence[str]) -> None:
        self.spec, self.scope, self.t, self.fields, self.languages = spec, scope, t, fields, languages
        self.values: list[Any] = []
        self.proposal = Proposal("", [], ())
        """What the process remembers, for REMEMBERED."""
        self._names: list[str | None] = []

    def bind(self, value: Any, sql_type: str, name: str | None = None) -> str:
        """A parameter; `name` says which of `_search_values` it is."""
        self.values.append(value)
        self._names.append(name)
        return f"${len(self.values)}::{sql_type}"

    def where(self, filters: Filters) -> str:
        """The mandatory conditions of the scope, and the filters, on `v`."""
        scope = self.scope
        self.organizations = self.bind(list(scope.organizations), "uuid[]", "organizations")
        self.readers = self.bind(scope.readers, "uuid[]", "readers")
        conditions = [
            f"v.org_id = ANY({self.organizations})",
            f"(v.private_to IS NULL OR v.private_to = ANY({self.readers}))",
            *(self.holds(each) for each in filters),
        ]
        if scope.site is not None:
            conditions.append(f"v.site_id = {self.bind(scope.site, 'uuid')}")
        return " AND ".join(conditions)

    def holds(self, given: MetadataFilter | MetadataFilters) -> str:
        """A checked filter on `v`: TRUE if it holds, else FALSE or NULL."""
        return translate(given, self._condition, _JOINS)

    def _condition(self, condition: MetadataFilter) -> str:
        kind, operator, value = self.spec.all_fields[condition.key], condition.operator, condition.value
        name, sql_type = f"v.{column(condition.key)}", _SQL_TYPES[kind]
        if operator is FilterOperator.IS_EMPTY:
            return f"coalesce(cardinality({name}), 0) = 0" if kind is FieldType.TAGS else f"{name} IS NULL"
        if operator is FilterOperator.CONTAINS:
            sql_type = "text"
        elif operator in (FilterOperator.IN, FilterOperator.NIN):
            sql_type = f"{sql_type}[]"
        indexed = ""
        if operator in (FilterOperator.EQ, FilterOperator.IN) and kind is FieldType.KEYWORD:
            values: Any = value if isinstance(value, list) else [value]
            if all(len(each.encode()) <= _LONGEST_INDEXED for each in values):  # then the partial index can be used
                indexed = f"octet_length({name}) <= {_LONGEST_INDEXED} AND "
        return indexed + _COMPARISONS[operator].format(name=name, value=self.bind(value, sql_type))

    def best(self, asked: Search, method: Method) -> str:
        """`candidates` in the order of `rag_app.retrieval.fusion.rank`, the `top_k` first, each with its text.

        Searches without filters differ in their values only, and writing the statement takes longer than all else that is
        done for one here: it is kept.
        """
        if is_filtered(asked, self.scope) or (method is Method.ANY and asked.mode is not Mode.TEXT):
            return self._write_best(asked, method)
        weights, bm25 = self.spec.fusion, self.spec.bm25
        shape = (self.t, asked.mode, method, len(asked.vector), weights.dense, weights.lexical, bm25.k1, bm25.b)
        if (written := _STATEMENTS.get(shape)) is not None:
            statement, names = written
            values = self._search_values(asked, method)
            self.values = [values[name] for name in names]
            return statement
        statement = self._write_best(asked, method)
        _STATEMENTS[shape] = statement, [name for name in self._names if name]
        return statement

    def _search_values(self, asked: Search, method: Method) -> dict[str, Any]:
        values: dict[str, Any] = {
            "embedding": asked.vector,
            "depth": asked.depth,
            "organizations": list(self.scope.organizations),
            "readers": self.scope.readers,
            "languages": self.languages,
            "text": asked.text,
            "top_k": asked.top_k,
        }
        if method is not Method.EXACT and asked.mode is not Mode.TEXT:
            sides, halves = self.proposal.planes or _planes(asked.vector)
            most, sure = _scan_bounds(asked, asked.top_k)
            values |= {"sides": sides, "halves": halves, "most": most, "sure": sure}
        if method is Method.REMEMBERED:
            values |= {"far": self.proposal.far, "version": self.proposal.version}
        return values

    def _write_best(self, asked: Search, method: Method) -> str:
        found, weights = self.candidates(asked, method, sure=asked.top_k), self.spec.fusion
        rank = {
            Mode.DENSE: "cosine",
            Mode.TEXT: "bm25",
            Mode.HYBRID: f"{weights.dense}::float8 * {_scale('cosine')} + {weights.lexical}::float8 * {_scale('bm25')}",
        }[asked.mode]
        told = "".join(f", best.{name}" for name in _columns_told(asked, method))
        return f"""SELECT best.id, best.cosine, best.bm25, c.text, c.metadata{told}
            FROM (SELECT *, {rank} AS rank FROM ({found}) found
                  ORDER BY rank DESC, id LIMIT {self.bind(asked.top_k, "bigint", "top_k")}) best
            CROSS JOIN LATERAL (SELECT * FROM {self.t}_chunks c WHERE c.no = best.no OFFSET 0) c
            ORDER BY best.rank DESC, best.id"""

    def candidates(self, asked: Search, method: Method, *, sure: int | None = None) -> str:
        """The best of each leg with their id, cosine and BM25.

        Plans are made once for all tenants. Every join is a lookup for each row before it; OFFSET 0 keeps the planner
        from choosing another kind of join. A table is named as few times as can be: starting a plan takes longer than
        searching a small organization.
        """
        embedding, limit = self.bind(asked.vector, "vector", "embedding"), self.bind(asked.depth, "bigint", "depth")
        visible, dense = self.where(asked.filters), ""
        if asked.mode != Mode.TEXT:
            dense = self._dense(embedding, asked, method, sure or asked.depth, limit, visible)
        told = "".join(f", (SELECT {name} FROM {of}) AS {name}" for name, of in _columns_told(asked, method).items())
        if asked.mode == Mode.DENSE:
            return f"WITH {dense} SELECT no, id, 1 - distance AS cosine, 0::float8 AS bm25{told} FROM dense"
        cosine, near = f"1 - (v.embedding <=> {embedding})", "" if asked.mode == Mode.TEXT else "dense"
        lexical = self._lexical(asked, limit, visible, cosine, near)
        if asked.mode == Mode.TEXT:
            return f"WITH {lexical} SELECT no, id, cosine, bm25 FROM best"
        # IS TRUE: a look into a hash table for each row, however few the planner takes them for
        return f"""WITH {dense}, {lexical},
            known AS MATERIALIZED (SELECT no, bm25 FROM met WHERE (no IN (SELECT no FROM dense)) IS TRUE)
            SELECT no, id, 1 - distance AS cosine, coalesce(bm25, 0) AS bm25{told}
            FROM dense LEFT JOIN known USING (no)
            UNION ALL SELECT no, id, cosine, bm25{told} FROM best WHERE (no IN (SELECT no FROM dense)) IS NOT TRUE"""

    def words(self, asked: Search, near: Sequence[UUID]) -> str:
        """Id and BM25 of the best chunks by words and of the chunks `near`, if visible."""
        limit, visible = self.bind(asked.depth, "bigint"), self.where(asked.filters)
        return f"""WITH near AS MATERIALIZED (
                SELECT c.no FROM {self.t}_chunks c WHERE c.id = ANY({self.bind(list(near), "uuid[]")})),
            {self._lexical(asked, limit, visible, "0::float8", "near")},
            wanted AS MATERIALIZED (SELECT no FROM best UNION SELECT no FROM near),
            known AS MATERIALIZED (
                SELECT no, bm25 FROM best UNION
                SELECT no, bm25 FROM met WHERE (no IN (SELECT no FROM near)) IS TRUE)
            SELECT v.id, coalesce(known.bm25, 0) AS bm25 FROM wanted {self._looked_up("wanted", visible)}
            LEFT JOIN known ON known.no = v.no"""

    def unknown(self, asked: Sequence[str]) -> str:
        """The words that are in no visible chunk and that every declared language counts as words."""
        visible, languages = self.where(()), self.bind(self.languages, "text[]")
        return f"""SELECT word FROM unnest({self.bind(list(asked), "text[]")}) word
            WHERE NOT EXISTS (SELECT FROM unnest({self.bind(list(self.spec.languages), "text[]")}) lang
                              WHERE NOT EXISTS (SELECT FROM rag_terms(lang, word)))
                AND NOT EXISTS (SELECT FROM unnest({languages}) lang CROSS JOIN LATERAL rag_terms(lang, word) of
                                CROSS JOIN LATERAL ({self._postings(visible)}) p)"""

    def spellings(self, options: Mapping[str, Mapping[str, float]]) -> str:
        """For each word, its spellings found in visible chunks and their number of chunks. A spelling of two words is found
        in chunks that have both.
        """
        visible, declared = self.where(()), self.bind(list(self.spec.languages), "text[]")
        rows = [(word, spelling, cost) for word, found in options.items() for spelling, cost in found.items()]
        columns = [
            self.bind([row[at] for row in rows], kind) for at, kind in enumerate(("text[]", "text[]", "float8[]"))
        ]
        return f"""SELECT * FROM (
            SELECT s.word, s.spelling, s.cost, min(coalesce(p.chunks, 0)) AS chunks
            FROM unnest({", ".join(columns)}) AS s (word, spelling, cost) CROSS JOIN LATERAL unnest({declared}) lang
            CROSS JOIN LATERAL rag_terms(lang, s.spelling) of
            CROSS JOIN LATERAL (SELECT sum(cardinality(p.postings)) AS chunks FROM ({self._postings(visible)}) p) p
            GROUP BY s.word, s.spelling, s.cost, lang) found WHERE chunks > 0"""

    def _postings(self, visible: str) -> str:
        """The visible rows of the term `of.term`; with a site, those with a chunk of that site."""
        there = f"""SELECT p.postings FROM {self.t}_words p WHERE p.org_id = ANY({self.organizations})
            AND p.term = of.term AND (p.private_to IS NULL OR p.private_to = ANY({self.readers}))"""
        if self.scope.site is not None:
            there += f""" AND EXISTS (SELECT FROM unnest(p.postings) each CROSS JOIN LATERAL (
                SELECT FROM {self.fields} v WHERE v.no = each >> {words.CHUNK} AND {visible} OFFSET 0) v)"""
        return f"{there} OFFSET 0"

    def word_use(self, asked: Sequence[str], among: Sequence[UUID]) -> str:
        """For each word that no declared language ignores: its number of chunks, the number of all chunks, and the chunks of
        `among` that have it. Only chunks that all members may see are counted."""
        languages, declared = self.bind(self.languages, "text[]"), self.bind(list(self.spec.languages), "text[]")
        visible = self.where(())
        return f"""WITH asked AS MATERIALIZED (
                SELECT word, lang, term FROM unnest({self.bind(list(asked), "text[]")}) word, unnest({languages}) lang,
                    LATERAL rag_terms(lang, word)),
            kept AS MATERIALIZED (
                SELECT word, array_agg(DISTINCT term) AS terms FROM asked GROUP BY word
                HAVING count(DISTINCT lang) FILTER (WHERE lang = ANY({declared})) = cardinality({declared})),
            among AS MATERIALIZED (
                SELECT c.id, c.terms FROM {self.t}_chunks c CROSS JOIN LATERAL (
                    SELECT FROM {self.fields} v WHERE v.no = c.no AND {visible} OFFSET 0) v
                WHERE c.id = ANY({self.bind(list(among), "uuid[]")}))
            SELECT word, (SELECT coalesce(sum(cardinality(p.postings)), 0)::float8
                    FROM unnest(terms) each (term) CROSS JOIN LATERAL (
                        SELECT p.postings FROM {self.t}_words p
                        WHERE p.org_id = ANY({self.organizations}) AND p.term = each.term AND p.private_to IS NULL
                        OFFSET 0) p) AS chunks,
                (SELECT coalesce(sum(s.shared), 0)::float8 FROM {self.t}_sizes s
                    WHERE s.org_id = ANY({self.organizations})) AS of,
                ARRAY(SELECT among.id FROM among WHERE among.terms && kept.terms) AS hits
            FROM kept ORDER BY word"""

    def texts(self, ids: Sequence[UUID], filters: Filters) -> str:
        """The visible chunks of these ids."""
        return f"""SELECT c.id, c.source_id, c.text, c.metadata FROM {self.t}_chunks c CROSS JOIN LATERAL (
            SELECT FROM {self.fields} v WHERE v.no = c.no AND {self.where(filters)} OFFSET 0) v
            WHERE c.id = ANY({self.bind(list(ids), "uuid[]")})"""

    def cosines(self, vector: Sequence[float], ids: Sequence[UUID], filters: Filters) -> str:
        """The cosines of the visible chunks of these ids, if `fields` has the vectors."""
        embedding = self.bind(vector, "vector")
        return f"""SELECT c.id, 1 - (v.embedding <=> {embedding}) AS cosine FROM {self.t}_chunks c CROSS JOIN LATERAL (
            SELECT * FROM {self.fields} v WHERE v.no = c.no AND {self.where(filters)} OFFSET 0) v
            WHERE c.id = ANY({self.bind(list(ids), "uuid[]")})"""

    def nearest(self, asked: Search) -> str:
        """The `depth` nearest of all visible chunks, by comparing each."""
        embedding = self.bind(asked.vector, "vector")
        return f"""SELECT id, 1 - distance AS cosine FROM (
            SELECT v.id, v.embedding <=> {embedding} AS distance FROM {self.fields} v
            WHERE {self.where(asked.filters)} ORDER BY distance, id LIMIT {self.bind(asked.depth, "bigint")}) v"""

    def count_up_to(self, filters: Filters, most: int) -> str:
        """How many chunks are visible, counted up to `most`."""
        visible = self.where(filters)
        return f"SELECT count(*) FROM (SELECT FROM {self.fields} v WHERE {visible} LIMIT {self.bind(most, 'bigint')}) v"

    def signs(self) -> str:
        """The signs that a process remembers."""
        organizations = self.bind(list(self.scope.organizations), "uuid[]")
        return READ.format(version=VERSION, t=self.t, organizations=organizations)

    def count(self) -> str:
        """How many chunks are visible."""
        return f"SELECT count(*) FROM {self.fields} v WHERE {self.where(())}"

    def _dense(self, embedding: str, asked: Search, method: Method, sure: int, limit: str, visible: str) -> str:
        """CTEs that end in `dense(no, id, distance)`: the `depth` nearest to the embedding.

        Of rows that are selected by their signs, the `depth` nearest by sign are compared, and those that are up to a
        margin farther than the `sure` best, because signs only approximate the order of cosines.
        """
        distance = f"SELECT v.no, v.id, v.embedding <=> {embedding} AS distance FROM"
        near = "" if method is Method.EXACT else self._nearest(embedding, asked, method, sure, limit, visible)
        selected = f"{distance} {self.fields} v WHERE v.no = ANY (ARRAY(SELECT no FROM near)) AND {visible}"
        compared = {
            Method.EXACT: f"{distance} {self.fields} v WHERE {visible}",
            Method.SIGNS: selected,
            Method.REMEMBERED: selected,
            Method.ANY: f"{distance} {self.fields} v WHERE (SELECT small FROM size) AND {visible} UNION ALL {selected}",
        }
        return _DENSE.format(near=near, compared=compared[method], limit=limit)

    def _nearest(self, embedding: str, asked: Search, method: Method, sure: int, limit: str, visible: str) -> str:
        """The CTEs up to `near(no)`. The nearest of very large organizations come from the graph, unless there are filters
        or the graph found too few.
        """
        dimension, sizes = len(asked.vector), ""
        planes = zip(("sides", "halves"), _planes(asked.vector), strict=True)
        sides, halves = (self.bind(each, f"bit({dimension})", name) for name, each in planes)
        most, after = _scan_bounds(asked, sure)
        if method is Method.ANY:
            sizes = _WALK.format(
                t=self.t,
                organizations=self.organizations,
                readers=self.readers,
                embedding=embedding,
                half=f"halfvec({dimension})",
                ahead=self.bind(max(_AHEAD * sure, asked.depth), "bigint"),
                may_walk=not is_filtered(asked, self.scope) and dimension <= LARGEST_GRAPH,
                graphed=GRAPHED,
                small=_EXACT_NUMBERS // dimension,
                larger=_LARGE,
            )
        proposed = left = ""
        if method is Method.REMEMBERED:
            sizes = _MEMORY_STATE.format(
                version=VERSION,
                known=self.bind(self.proposal.version, "text", "version"),
                t=self.t,
                organizations=self.organizations,
            )
            proposed = _MEMORY_ROWS.format(far=self.bind(self.proposal.far, "float8[]", "far"))
            left = _UNREMEMBERED_ROWS
        return _SCAN.format(
            t=self.t,
            walk=sizes,
            proposed=proposed,
            left=left,
            walked=_WALK_ROWS if method is Method.ANY else "",
            scanned="v.org_id = ANY ((SELECT organizations FROM scanned)::uuid[])" if method is Method.ANY else "TRUE",
            limit=limit,
            visible=visible,
            far=f"(2 * (v.signs <~> {sides}) + (v.signs <~> {halves}))",
            most=self.bind(most, "bigint", "most"),
            place=2**words.NUMBER,
            sure=self.bind(after, "bigint", "sure"),
            margin=_MARGIN * dimension**0.5 * 2**words.NUMBER,
        )

    def _looked_up(self, of: str, visible: str) -> str:
        return f"""CROSS JOIN LATERAL (
            SELECT * FROM {self.fields} v WHERE v.no = {of}.no AND {visible} OFFSET 0) v"""

    def _lexical(self, asked: Search, limit: str, visible: str, cosine: str, near: str) -> str:
        """CTEs that end in `lexical(no, bm25)`, every chunk that shares a term with the text, and `best` of these. Where
        there are chunks `near`, `met(no, bm25)` has those of them that are in `lexical`, too.

        The rows of `words` contain tenant and reader; filters look up the chunk.
        """
        bm25 = self.spec.bm25
        return (words.LEXICAL + (_SHARED_TERMS if near else "") + _BEST).format(
            by_length=f"{bm25.k1 * bm25.b}::float8",
            plain=f"{bm25.k1 * (1 - bm25.b)}::float8",
            most=f"{bm25.k1 + 1}::float8",
            t=self.t,
            languages=self.bind(self.languages, "text[]", "languages"),
            text=self.bind(asked.text, "text", "text"),
            organizations=self.organizations,
            readers=self.readers,
            filtered=self._looked_up("p", visible) if is_filtered(asked, self.scope) else "",
            kept="MATERIALIZED" if is_filtered(asked, self.scope) else "NOT MATERIALIZED",
            near=near,
            met="met" if near else "lexical",
            limit=limit,
            cosine=cosine,
            looked_up=self._looked_up("top", visible),
        )


# Statements of `best` by what they depend on, each with the names of its values.
_STATEMENTS = LRUCache[tuple[Any, ...], tuple[str, list[str]]](1_000)


def _scan_bounds(asked: Search, sure: int) -> tuple[int, int]:
    """How many of the nearest by sign are compared at most, and after which one the margin begins."""
    return max(_MOST, 4 * asked.depth), max(min(sure, asked.depth) - 1, 0)


def propose(signs: Signs, asked: Search) -> Proposal:
    """What `Query.best` takes for the nearest by sign, of signs that are remembered."""
    most, sure = _scan_bounds(asked, asked.top_k)
    margin = ceil(_MARGIN * len(asked.vector) ** 0.5) + 1
    planes = _planes(asked.vector)
    return signs.propose(planes, max(asked.depth, 1), sure + 1, most + 1, margin, 2**words.NUMBER)


def _columns_told(asked: Search, method: Method) -> Mapping[str, str]:
    return {} if asked.mode is Mode.TEXT else _COLUMNS_BESIDE.get(method, {})


def _planes(vector: Sequence[float]) -> tuple[BitString, BitString]:
    """Two bits for each dimension: which side of zero the number is on, and of the middle of that side.

    A number in its quarter (-1.5, -0.5, 0.5 or 1.5 of the root mean square) makes sums with the signs of a chunk that are
    much nearer to the cosine than those of signs with signs: 2 H(sides) + H(halves), H the number of differing bits, is
    a constant minus that sum.
    """
    numbers = np.asarray(vector, np.float64)
    sides = numbers > 0
    halves = sides == (np.abs(numbers) > np.linalg.norm(numbers) / len(numbers) ** 0.5)
    return _bits(sides), _bits(halves)


def _bits(given: npt.NDArray[np.bool_]) -> BitString:
    return BitString.frombytes(np.packbits(given).tobytes(), len(given))


def _scale(score: str) -> str:
    """The score scaled to 0..1 over all candidates, as in `rag_app.retrieval.fusion`."""
    low, high = f"min({score}) OVER ()", f"max({score}) OVER ()"
    return f"coalesce(({score} - {low}) / nullif({high} - {low}, 0), 0)"
