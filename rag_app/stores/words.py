"""The tables that a generation has in PostgreSQL for every store: chunks with their texts, and the words in them.

Postings are arrays (docs/adr/0013-postings-as-arrays.md): a row of `words` holds up to `BLOCK` of one term in one
organization, for all of its members or for one reader. A posting is one number: chunk, occurrences, length of the
chunk. Frequencies are the organization's own, counted over the chunks that all of its members may see.
"""

BLOCK = 32
"""Postings in a row: some 300 bytes. Only the last row of a term grows, and each write copies it."""
NUMBER = 37
"""Bits of a chunk's number."""
CHUNK, COUNT = 26, 17
"""Bits that the chunk's number and the occurrences are moved by in a posting; the chunk's length is below."""
_MOST, _LONGEST = 2 ** (CHUNK - COUNT) - 1, 2**COUNT - 1  # PostgreSQL's lexemes have 255 positions at most

NAMES = ("chunks", "words", "sizes")

TABLES = """
        CREATE TABLE {t}_chunks (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id uuid NOT NULL UNIQUE,
            org_id uuid NOT NULL, private_to uuid, source_id uuid NOT NULL, text text NOT NULL, metadata jsonb NOT NULL,
            length integer NOT NULL, terms integer[] NOT NULL);
        CREATE INDEX ON {t}_chunks (source_id);
        CREATE TABLE {t}_words (org_id uuid, term integer, first bigint, private_to uuid, postings bigint[] NOT NULL,
            PRIMARY KEY (org_id, term, first)) WITH (fillfactor = 85);
        ALTER TABLE {t}_words ALTER postings SET STORAGE PLAIN;
        CREATE TABLE {t}_sizes (org_id uuid PRIMARY KEY, chunks bigint NOT NULL, shared bigint NOT NULL,
            length bigint NOT NULL, languages text[] NOT NULL) WITH (fillfactor = 70);"""
"""`first`: no posting of the row is of an earlier chunk. `sizes`: all chunks; those that every member may see, and
their lengths together; the analyzers of all chunks that there were, so that a search asks for the terms of these alone."""

# Numbers the postings `{rows}` of each term through and puts them into rows. `first` is that of the row which grows.
_PACK = f"""
        INSERT INTO {{t}}_words (org_id, term, first, private_to, postings)
        SELECT org_id, term, coalesce(min(first), min(posting) >> {CHUNK}), private_to, array_agg(posting ORDER BY posting)
        FROM (SELECT *, (row_number() OVER (PARTITION BY org_id, term, private_to ORDER BY posting) - 1) / {BLOCK} AS block
              FROM {{rows}}) each
        GROUP BY org_id, term, private_to, block ORDER BY org_id, term, 3
        ON CONFLICT (org_id, term, first) DO UPDATE SET postings = excluded.postings"""

INSERT = f"""
    WITH analyzed AS MATERIALIZED (
        SELECT input.*, found.* FROM unnest(
            $1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::jsonb[]
        ) WITH ORDINALITY AS input (id, org_id, private_to, source_id, lang, heading, text, metadata, place)
        CROSS JOIN LATERAL (
            SELECT coalesce(array_agg(term), '{{{{}}}}') AS terms, array_agg(tf) AS counts,
                coalesce(sum(tf), 0)::integer AS length
            FROM (SELECT term, least(sum(tf), {_MOST}) AS tf
                  FROM rag_terms(input.lang, input.heading || E'\\n' || input.text) GROUP BY term) each) found),
    chunks AS (
        INSERT INTO {{t}}_chunks (id, org_id, private_to, source_id, text, metadata, length, terms)
        SELECT id, org_id, private_to, source_id, text, metadata, length, terms FROM analyzed ORDER BY place
        RETURNING no, org_id, private_to, length),
    numbers AS MATERIALIZED (SELECT array_agg(no ORDER BY no) AS each FROM chunks),
    new AS MATERIALIZED (
        SELECT org_id, term, private_to, array_agg(posting | (count << {COUNT}) ORDER BY posting) AS postings
        FROM (SELECT org_id, private_to, terms, counts,
                  (numbers.each[place] << {CHUNK}) | least(length, {_LONGEST})::bigint AS posting
              FROM analyzed CROSS JOIN numbers OFFSET 0) a
        CROSS JOIN LATERAL unnest(a.terms, a.counts) AS each (term, count)
        GROUP BY term, org_id, private_to),
    longer AS MATERIALIZED (
        SELECT n.org_id, n.term, n.private_to, last.place, coalesce(last.postings || n.postings, n.postings) AS postings,
            CASE WHEN last.place IS NULL THEN 1 ELSE {BLOCK + 1} END AS rest
        FROM new n LEFT JOIN LATERAL (
            SELECT w.ctid AS place, w.postings FROM {{t}}_words w
            WHERE w.org_id = n.org_id AND w.term = n.term AND w.private_to IS NOT DISTINCT FROM n.private_to
            ORDER BY w.first DESC LIMIT 1) last ON cardinality(last.postings) < {BLOCK}),
    grown AS (UPDATE {{t}}_words w SET postings = l.postings[:{BLOCK}] FROM longer l WHERE w.ctid = l.place),
    added AS (
        INSERT INTO {{t}}_words (org_id, term, first, private_to, postings)
        SELECT org_id, term, postings[start] >> {CHUNK}, private_to, postings[start:start + {BLOCK - 1}]
        FROM longer CROSS JOIN LATERAL generate_series(rest, cardinality(postings), {BLOCK}) AS start
        WHERE rest <= cardinality(postings) ORDER BY org_id, term, 3),
    sizes AS (
        INSERT INTO {{t}}_sizes AS s (org_id, chunks, shared, length, languages)
        SELECT org_id, count(*), count(*) FILTER (WHERE private_to IS NULL),
            coalesce(sum(length) FILTER (WHERE private_to IS NULL), 0), array_agg(DISTINCT lang)
        FROM analyzed GROUP BY org_id
        ON CONFLICT (org_id) DO UPDATE SET chunks = s.chunks + excluded.chunks,
            shared = s.shared + excluded.shared, length = s.length + excluded.length,
            languages = ARRAY(SELECT unnest(s.languages) UNION SELECT unnest(excluded.languages) ORDER BY 1))
    SELECT no FROM chunks ORDER BY no"""
"""Of chunks in columns: their numbers, in the same order.

Postings of later chunks are appended: to the last row of their term as far as there is room, the others in rows of their
own. The caller is the only writer of its organizations, so that rows stay where they are.
"""

# A row's postings are in order, so that the place of a chunk's is found by halves. As many places before it as there are
# smaller ones: the posting of a chunk is larger than its number alone.
_SMALLER = f"width_bucket(h.gone[1] << {CHUNK}, w.postings)"
_IS_ONE = f"cardinality(h.gone) = 1 AND w.postings[{_SMALLER} + 1] >> {CHUNK} = h.gone[1]"
_WITHOUT_ONE = f"w.postings[:{_SMALLER}] || w.postings[{_SMALLER} + 2:]"

DELETE = f"""
    WITH old AS MATERIALIZED (
        SELECT no, org_id, private_to, length, terms FROM {{t}}_chunks
        WHERE (source_id = ANY($1) OR id = ANY($2)) AND org_id = ANY($3)),
    held AS MATERIALIZED (
        SELECT w.place, array_agg(o.no) AS gone
        FROM old o CROSS JOIN LATERAL unnest(o.terms) AS each (term) CROSS JOIN LATERAL (
            SELECT w.ctid AS place FROM {{t}}_words w
            WHERE w.org_id = o.org_id AND w.term = each.term AND w.first <= o.no
                AND w.private_to IS NOT DISTINCT FROM o.private_to
            ORDER BY w.first DESC LIMIT 1) w
        GROUP BY w.place),
    emptied AS (
        DELETE FROM {{t}}_words w USING held h
        WHERE w.ctid = h.place AND cardinality(w.postings) = cardinality(h.gone)),
    trimmed AS (
        UPDATE {{t}}_words w
        SET postings = CASE WHEN {_IS_ONE} THEN {_WITHOUT_ONE} ELSE ARRAY(
            SELECT each FROM (SELECT unnest(w.postings) AS each OFFSET 0) every WHERE (each >> {CHUNK}) <> ALL(h.gone)) END
        FROM held h WHERE w.ctid = h.place AND cardinality(w.postings) > cardinality(h.gone)
        RETURNING w.org_id, w.term, cardinality(w.postings) AS kept),
    fewer AS MATERIALIZED (
        SELECT org_id, count(*) AS chunks, count(*) FILTER (WHERE private_to IS NULL) AS shared,
            coalesce(sum(length) FILTER (WHERE private_to IS NULL), 0) AS length FROM old GROUP BY org_id),
    sizes AS (
        UPDATE {{t}}_sizes s
        SET chunks = s.chunks - n.chunks, shared = s.shared - n.shared, length = s.length - n.length
        FROM fewer n WHERE s.org_id = n.org_id AND s.chunks > n.chunks),
    without AS (DELETE FROM {{t}}_sizes s USING fewer n WHERE s.org_id = n.org_id AND s.chunks <= n.chunks),
    chunks AS (DELETE FROM {{t}}_chunks c USING old WHERE c.no = old.no RETURNING c.no)
    SELECT ARRAY(SELECT no FROM chunks) AS gone, array_agg(org_id) AS organizations, array_agg(term) AS terms
    FROM trimmed WHERE kept < {BLOCK // 2}"""
"""The numbers of the chunks that went; the terms of which rows are less than half full now. The caller is the only
writer of its organizations, so that rows stay where they are."""

MERGE = f"""
    WITH sparse AS MATERIALIZED (
        SELECT w.org_id, w.term, w.private_to
        FROM (SELECT DISTINCT * FROM unnest($1::uuid[], $2::integer[]) AS given (org_id, term)) of CROSS JOIN LATERAL (
            SELECT * FROM {{t}}_words w WHERE w.org_id = of.org_id AND w.term = of.term OFFSET 0) w
        GROUP BY w.org_id, w.term, w.private_to HAVING count(*) > 1 + 2 * sum(cardinality(w.postings)) / {BLOCK}),
    taken AS (
        DELETE FROM {{t}}_words w USING sparse s
        WHERE w.org_id = s.org_id AND w.term = s.term AND w.private_to IS NOT DISTINCT FROM s.private_to
        RETURNING w.org_id, w.term, w.private_to, w.postings)
    {_PACK.format(t="{t}", rows="(SELECT org_id, term, private_to, NULL::bigint AS first, unnest(postings) AS posting FROM taken) each")}"""
"""Of these terms those are put together that have more than twice the rows they need."""

LEXICAL = f"""held AS MATERIALIZED (
                SELECT p.shared, p.length, p.languages FROM {{t}}_sizes p WHERE p.org_id = ANY({{organizations}})),
            asked AS MATERIALIZED (
                SELECT term, sum(tf)::float8 AS tf FROM unnest({{languages}}) AS lang, LATERAL rag_terms(lang, {{text}})
                WHERE lang = ANY (ARRAY(SELECT unnest(languages) FROM held)) GROUP BY term ORDER BY term),
            rows AS MATERIALIZED (
                SELECT a.term, a.tf, p.shared, p.postings FROM asked a CROSS JOIN LATERAL (
                    SELECT CASE WHEN p.private_to IS NULL THEN cardinality(p.postings) END AS shared, p.postings
                    FROM {{t}}_words p
                    WHERE p.org_id = ANY({{organizations}}) AND p.term = a.term
                        AND (p.private_to IS NULL OR p.private_to = ANY({{readers}})) OFFSET 0) p),
            rule AS MATERIALIZED (
                SELECT coalesce(sum(shared), 0)::float8 AS chunks,
                    coalesce({{by_length}} * sum(shared)::float8 / nullif(sum(length), 0)::float8, 0) AS norm
                FROM held),
            weights AS MATERIALIZED (
                SELECT rule.norm, array_agg(n.term ORDER BY n.term) AS terms, array_agg(
                    {{most}} * n.tf * ln(1 + (rule.chunks - n.df + 0.5) / (n.df + 0.5)) ORDER BY n.term) AS each
                FROM (SELECT term, tf, coalesce(sum(shared), 0)::float8 AS df FROM rows GROUP BY term, tf) n
                CROSS JOIN rule GROUP BY rule.norm),
            lexical AS {{kept}} (
                SELECT p.no, p.bm25 FROM (
                    SELECT posting >> {CHUNK} AS no, sum(weight / (1 + ({{plain}} + norm * (posting & {_LONGEST})::float8)
                        / ((posting >> {COUNT}) & {_MOST})::float8)) AS bm25
                    FROM (SELECT weight, norm, unnest(postings) AS posting FROM (
                        SELECT w.each[width_bucket(r.term, w.terms)] AS weight, w.norm, r.postings
                        FROM rows r CROSS JOIN weights w OFFSET 0) r OFFSET 0) each
                    GROUP BY posting >> {CHUNK}) p {{filtered}})"""
"""CTEs that end in `lexical(no, bm25)`: every chunk that shares a term with the text, each as often as the text has it.

Robertson's BM25; `plain` is k1 (1 - b), `by_length` k1 b, `most` k1 + 1. Terms are added up in one order, that of
`rows`, so that a score is the same to the last bit whatever else is in the table. The weight of a row's term is looked up in
an array, because a join would compare each row with each term.
"""
