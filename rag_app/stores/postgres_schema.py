"""The tables of a generation in PostgreSQL (docs/adr/0003-postgres-layout.md)."""

from rag_app.domain.filters import FieldType
from rag_app.retrieval.index import BASE_FIELDS, IndexSpec

SQL_TYPES = {
    FieldType.KEYWORD: "text",
    FieldType.UUID: "uuid",
    FieldType.INTEGER: "bigint",
    FieldType.NUMBER: "double precision",
    FieldType.BOOLEAN: "boolean",
    FieldType.TIME: "double precision",
    FieldType.TAGS: "text[]",
}
_LARGEST_PLAIN_VECTOR = 1900  # dimensions that fit a page together with the row
LARGEST_GRAPH = 4000
"""Dimensions up to which there is a graph: half-precise vectors of that many fit a page."""
LONGEST_INDEXED = 400
"""Bytes up to which a keyword is in the index of its field: more than names and codes have, and far from the third of a
page that PostgreSQL takes as a key at most."""
_ORGANIZATIONS = "org_id = ANY ((SELECT rag_organizations())::uuid[])"
_READERS = "(private_to IS NULL OR private_to = (SELECT rag_user()) OR (SELECT rag_operator()))"
_POLICIES = dict.fromkeys(("chunks", "vectors", "signs", "postings"), f"{_ORGANIZATIONS} AND {_READERS}") | {
    "sizes": _ORGANIZATIONS
}


def create_statements(spec: IndexSpec, generation: str, dimension: int) -> str:
    """The DDL of a generation's tables.

    What a scan reads of every row comes first in it: a row is taken apart from the left.
    """
    t = generation
    fields = "".join(f", {column(name)} {SQL_TYPES[kind]}" for name, kind in spec.fields.items())
    filtered = f"site_id uuid, source_id uuid NOT NULL, source_type text NOT NULL, lang text NOT NULL, date double precision{fields}"
    storage = "PLAIN" if dimension <= _LARGEST_PLAIN_VECTOR else "EXTERNAL"
    # 128 candidates for each chunk's neighbours and not 64: recall .98 instead of .96 (docs/adr/0003)
    graph = f"""CREATE INDEX ON {t}_vectors USING hnsw ((embedding::halfvec({int(dimension)})) halfvec_cosine_ops)
            WITH (ef_construction = 128);"""
    kinds = {"site_id": FieldType.UUID} | {
        column(name): kind for name, kind in spec.all_fields.items() if name != "org_id"
    }
    indexes = "".join(
        f"CREATE INDEX ON {t}_signs (org_id, {name})"
        f"{f' WHERE octet_length({name}) <= {LONGEST_INDEXED}' if kind is FieldType.KEYWORD else ''};"
        for name, kind in kinds.items()
        if kind is not FieldType.TAGS
    )
    policies = "".join(
        f"ALTER TABLE {t}_{name} ENABLE ROW LEVEL SECURITY; ALTER TABLE {t}_{name} FORCE ROW LEVEL SECURITY;"
        f"CREATE POLICY tenant ON {t}_{name} USING ({using});"
        for name, using in _POLICIES.items()
    )
    return f"""
        CREATE TABLE {t}_chunks (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id uuid NOT NULL UNIQUE,
            org_id uuid NOT NULL, private_to uuid, source_id uuid NOT NULL, lang text NOT NULL, heading text NOT NULL,
            text text NOT NULL, metadata jsonb NOT NULL);
        CREATE INDEX ON {t}_chunks (source_id);
        CREATE TABLE {t}_vectors (no bigint PRIMARY KEY REFERENCES {t}_chunks ON DELETE CASCADE, id uuid NOT NULL,
            org_id uuid NOT NULL, embedding vector({int(dimension)}) NOT NULL, private_to uuid, {filtered});
        ALTER TABLE {t}_vectors ALTER embedding SET STORAGE {storage};
        CREATE INDEX ON {t}_vectors (org_id, no);
        {graph if dimension <= LARGEST_GRAPH else ""}
        CREATE TABLE {t}_signs (org_id uuid, no bigint, signs bit({int(dimension)}) NOT NULL, private_to uuid, {filtered},
            PRIMARY KEY (org_id, no));
        {indexes}
        CREATE TABLE {t}_sizes (org_id uuid PRIMARY KEY, chunks bigint NOT NULL) WITH (fillfactor = 70);
        CREATE TABLE {t}_postings (term integer, org_id uuid, no bigint, private_to uuid, tf integer NOT NULL,
            length integer NOT NULL, PRIMARY KEY (term, org_id, no));
        CREATE TABLE {t}_terms (term integer PRIMARY KEY, df bigint NOT NULL) WITH (fillfactor = 70);
        CREATE TABLE {t}_totals (chunks bigint NOT NULL);
        INSERT INTO {t}_totals VALUES (0);
        {policies}
        {_CALLERS.format(t=t, function=function) if (function := _FUNCTIONS.get(spec.name)) else ""}"""


def drop_statements(generation: str) -> str:
    """The DDL that takes a generation's tables away."""
    names = ("vectors", "signs", "sizes", "postings", "terms", "totals", "chunks")  # vectors refer to chunks
    return "".join(f"DROP TABLE IF EXISTS {generation}_{name};" for name in names)


def column(field: str) -> str:
    """Where a field that may be filtered by is, in `vectors` and `signs`."""
    return field if field in BASE_FIELDS else f"x_{field}"


_FUNCTIONS = {"org_knowledge": "rag_match", "store_catalogue": "match_embeddings", "marketplace": "search_rag_context"}
"""The SQL functions of migration 0004, by the index that they search."""

_CALLERS = """
        DO $$ DECLARE caller regrole; BEGIN  -- who may call the function needs what it reads
            FOR caller IN SELECT grantee FROM pg_proc, aclexplode(proacl)
                          WHERE pg_proc.oid = to_regproc('{function}') AND grantee <> 0 LOOP
                EXECUTE format('GRANT SELECT ON {t}_chunks, {t}_vectors TO %s', caller);
            END LOOP; END $$;"""
