"""Search from SQL: rag_match, match_embeddings and search_rag_context; who a role acts for.

Revision ID: 0004
Revises: 0003

Until now every role said for whom it acts, in the settings rag.*. From here on the application's roles do, and any
other is who the claims of a verified token say: a gateway such as PostgREST sets `request.jwt.claims` for each
request. The application is who may write memberships: to believe it gives nothing away that it could not take.
docs/sql.md explains the functions to their callers.
"""

from alembic import op
from alembic.util import CommandError
from sqlalchemy import text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

PUBLIC = "00000000-0000-0000-0000-000000000001"

SETTINGS = {
    "rag_organizations() RETURNS uuid[]": "coalesce(nullif(current_setting('rag.organizations', true), ''), '{}')::uuid[]",
    "rag_user() RETURNS uuid": "nullif(current_setting('rag.user', true), '')::uuid",
    "rag_operator() RETURNS boolean": "coalesce(current_setting('rag.operator', true) = 'on', false)",
}
OTHERS = {
    "rag_organizations() RETURNS uuid[]": "rag_claimed_organizations()",
    "rag_user() RETURNS uuid": "rag_claimed_user()",
    "rag_operator() RETURNS boolean": "false",
}

# One expression each, without a sub-select, so that PostgreSQL inlines them: policies ask for every statement.
IDENTITY = [
    """
    CREATE FUNCTION rag_application() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN has_table_privilege('memberships'::regclass, 'INSERT')
    """,
    """
    CREATE FUNCTION rag_subject() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN nullif(btrim(nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub'), '')
    """,
    # The two functions with their owner's rights. They take no argument: they tell nothing but the caller's own.
    """
    CREATE FUNCTION rag_claimed_user() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN coalesce((SELECT id FROM users WHERE subject = rag_subject()),
        CASE WHEN replace(rag_subject(), '-', '') ~* '^[0-9a-f]{32}$' THEN replace(rag_subject(), '-', '')::uuid END)
    """,
    f"""
    CREATE FUNCTION rag_claimed_organizations() RETURNS uuid[] LANGUAGE sql STABLE PARALLEL SAFE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN CASE WHEN rag_subject() IS NULL THEN '{{}}'::uuid[]
        ELSE ARRAY(SELECT org_id FROM memberships WHERE user_id = rag_claimed_user()) || '{PUBLIC}'::uuid END
    """,
    "REVOKE EXECUTE ON FUNCTION rag_claimed_organizations(), rag_claimed_user() FROM PUBLIC",
    "COMMENT ON FUNCTION rag_application() IS 'Whether the current role says itself, in rag.*, for whom it acts'",
    "COMMENT ON FUNCTION rag_subject() IS 'Whom the claims of the request name; NULL without claims'",
    "COMMENT ON FUNCTION rag_claimed_user() IS 'The user whom that subject stands for, where it can be one of ours'",
    "COMMENT ON FUNCTION rag_claimed_organizations() IS 'Of that user, and what is public; nothing without claims'",
]

GENERATION = """
    CREATE FUNCTION rag_generation(name text, query vector, wanted integer) RETURNS text
    LANGUAGE plpgsql STABLE PARALLEL SAFE AS $function$
    DECLARE
        active record;
    BEGIN
        SELECT number, dimension, embedding_model INTO active
        FROM generations WHERE index_name = name AND store = 'postgres' AND state = 'active';
        IF NOT FOUND THEN
            RAISE EXCEPTION 'index % has no active generation in PostgreSQL', name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'Run `rag-app db upgrade`. What RAG_VECTOR_STORE keeps in Qdrant is searched over HTTP.';
        END IF;
        IF query IS NULL OR vector_dims(query) <> active.dimension OR vector_norm(query) = 0 THEN
            RAISE EXCEPTION 'the query must be a vector of % dimensions that is not zero, not %', active.dimension,
                CASE WHEN query IS NULL THEN 'null' WHEN vector_norm(query) = 0 THEN 'zero'
                     ELSE format('one of %s', vector_dims(query)) END
            USING ERRCODE = 'invalid_parameter_value',
                HINT = format('Index %s was built with %s: embed the question with that.', name, active.embedding_model);
        END IF;
        IF wanted IS NULL OR wanted NOT BETWEEN 1 AND 1000 THEN
            RAISE EXCEPTION 'the number of rows must be between 1 and 1000, not %', coalesce(wanted::text, 'null')
            USING ERRCODE = 'invalid_parameter_value';
        END IF;
        RETURN format('g_%s_%s', name, active.number);
    END $function$
"""

# What chunks say of themselves and has a column of its own in what the functions return, or is for us alone.
OWN_KEYS = "'{source_id,title,source_type,lang,position,uri,date,owner_id,site_id,private_to,version}'::text[]"

RAG_MATCH = rf"""
    CREATE FUNCTION rag_match(query_vector vector, top_k integer DEFAULT 8, filters jsonb DEFAULT '{{}}')
    RETURNS TABLE (chunk_id uuid, source_id uuid, score double precision, text text, snippet text, source_type text,
        source_title text, source_uri text, meta jsonb)
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY INVOKER SET timezone = 'UTC' AS $function$
    DECLARE
        generation CONSTANT text := rag_generation('org_knowledge', query_vector, top_k);
        given CONSTANT jsonb := coalesce(nullif(filters, 'null'), '{{}}');
        until timestamptz;
        compared text := '<=';
        name text;
    BEGIN
        IF jsonb_typeof(given) <> 'object' THEN
            RAISE EXCEPTION 'filters: must be an object' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        FOR name IN SELECT jsonb_object_keys(given) LOOP
            IF name NOT IN ('source_type', 'lang', 'org_id', 'date_from', 'date_to') THEN
                RAISE EXCEPTION 'filters: unknown field %; accepted: date_from, date_to, lang, org_id, source_type',
                    to_json(left(name, 50)) USING ERRCODE = 'invalid_parameter_value';
            ELSIF jsonb_typeof(given -> name) NOT IN ('string', 'null') THEN
                RAISE EXCEPTION 'filters.%: must be a text', name USING ERRCODE = 'invalid_parameter_value';
            ELSIF name LIKE 'date%' AND given ->> name !~*
                '^\d{{4}}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?$' THEN
                RAISE EXCEPTION 'filters.%: must be an ISO 8601 date or timestamp', name
                USING ERRCODE = 'invalid_parameter_value';
            END IF;
        END LOOP;
        until := given ->> 'date_to';
        IF length(given ->> 'date_to') = 10 THEN  -- a day: the whole of it
            until := until + interval '1 day';
            compared := '<';
        END IF;
        RETURN QUERY EXECUTE format($query$
            SELECT best.id, c.source_id, best.score, c.text, left(c.text, 200), best.source_type,
                c.metadata ->> 'title', c.metadata ->> 'uri',
                c.metadata - {OWN_KEYS} || CASE WHEN best.date IS NULL THEN '{{}}' ELSE jsonb_build_object(
                    'date', to_jsonb(to_timestamp(best.date) AT TIME ZONE 'UTC') #>> '{{}}' || 'Z') END
            FROM (
                SELECT v.no, v.id, v.source_type, v.date, 1 - (v.embedding <=> $1) AS score
                FROM %1$I v
                WHERE v.org_id = ANY ($2) AND (v.private_to IS NULL OR v.private_to = $3)
                    AND ($4 IS NULL OR v.source_type = $4)
                    AND ($5 IS NULL OR v.lang = $5)
                    AND ($6 IS NULL OR v.org_id = $6)
                    AND ($7 IS NULL OR v.date >= $7)
                    AND ($8 IS NULL OR v.date %3$s $8)
                ORDER BY v.embedding <=> $1, v.id LIMIT $9
            ) best JOIN %2$I c USING (no)
            ORDER BY best.score DESC, best.id
            $query$, generation || '_vectors', generation || '_chunks', compared)
        USING query_vector, rag_organizations(), rag_user(), given ->> 'source_type',
            lower(split_part(replace(btrim(given ->> 'lang'), '_', '-'), '-', 1)), (given ->> 'org_id')::uuid,
            extract(epoch FROM (given ->> 'date_from')::timestamptz)::double precision,
            extract(epoch FROM until)::double precision, top_k;
    END $function$
"""

MATCH_EMBEDDINGS = f"""
    CREATE FUNCTION match_embeddings(query_embedding vector, match_threshold double precision, match_count integer,
        tenant_id_param uuid, site_id_param uuid, entity_types text[] DEFAULT NULL)
    RETURNS TABLE (id uuid, tenant_id uuid, site_id uuid, entity_type text, entity_id uuid, chunk_index integer,
        content text, embedding vector, metadata jsonb, source_updated_at timestamptz, distance double precision)
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY INVOKER AS $function$
    DECLARE
        generation CONSTANT text := rag_generation('store_catalogue', query_embedding, match_count);
    BEGIN
        IF tenant_id_param IS NULL OR site_id_param IS NULL OR match_threshold IS NULL THEN
            RAISE EXCEPTION 'tenant_id_param, site_id_param and match_threshold are needed'
            USING ERRCODE = 'null_value_not_allowed';
        END IF;
        RETURN QUERY EXECUTE format($query$
            SELECT v.id, v.org_id, v.site_id, v.source_type, v.source_id, (c.metadata ->> 'position')::integer,
                c.text, v.embedding,
                c.metadata - {OWN_KEYS} || jsonb_strip_nulls(
                    jsonb_build_object('title', c.metadata -> 'title', 'uri', c.metadata -> 'uri', 'lang', v.lang)),
                to_timestamp(v.date), best.distance
            FROM (
                SELECT v.no, v.embedding <=> $1 AS distance
                FROM %1$I v
                WHERE v.org_id = ANY ($2) AND (v.private_to IS NULL OR v.private_to = $3)
                    AND v.org_id = $4 AND v.site_id = $5
                    AND ($6 IS NULL OR v.source_type = ANY ($6))
                    AND (v.embedding <=> $1) <= $7
                ORDER BY v.embedding <=> $1, v.id LIMIT $8
            ) best JOIN %1$I v USING (no) JOIN %2$I c USING (no)
            ORDER BY best.distance, v.id
            $query$, generation || '_vectors', generation || '_chunks')
        USING query_embedding, rag_organizations(), rag_user(), tenant_id_param, site_id_param, entity_types,
            match_threshold, match_count;
    END $function$
"""

SEARCH_RAG_CONTEXT = f"""
    CREATE FUNCTION search_rag_context(p_query_embedding vector, p_user_id uuid, p_capability text DEFAULT 'general_chat',
        p_market text DEFAULT NULL, p_time_range_from timestamptz DEFAULT NULL, p_time_range_to timestamptz DEFAULT NULL,
        p_top_k integer DEFAULT 40)
    RETURNS TABLE (source_id uuid, source_type text, source_label text, similarity_score double precision,
        metadata jsonb, owner_scope text)
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY INVOKER AS $function$
    DECLARE
        generation CONSTANT text := rag_generation('marketplace', p_query_embedding, p_top_k);
        source_types CONSTANT text[] := CASE p_capability
            WHEN 'market_brief' THEN '{{keyword,trend}}'
            WHEN 'competitor_intel' THEN '{{listing,shop,keyword}}'
            WHEN 'keyword_explanation' THEN '{{keyword,keyword_history,alert}}'
            WHEN 'alert_explanation' THEN '{{alert,risk_rule,doc}}'
            WHEN 'general_chat' THEN '{{doc,keyword,watchlist}}' END;
    BEGIN
        IF source_types IS NULL THEN
            RAISE EXCEPTION 'p_capability: there is no %; accepted: alert_explanation, competitor_intel, general_chat,'
                ' keyword_explanation, market_brief', coalesce(to_json(left(p_capability, 50))::text, 'null')
            USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF p_user_id IS DISTINCT FROM rag_user() THEN
            RAISE EXCEPTION 'p_user_id: must be the user who asks' USING ERRCODE = 'insufficient_privilege';
        END IF;
        RETURN QUERY EXECUTE format($query$
            SELECT best.source_id, best.source_type, c.metadata ->> 'title', 1 - best.distance,
                c.metadata - {OWN_KEYS} || jsonb_strip_nulls(jsonb_build_object('chunk_id', c.id, 'text', c.text,
                    'uri', c.metadata -> 'uri',
                    'date', to_jsonb(to_timestamp(best.date) AT TIME ZONE 'UTC') #>> '{{}}' || 'Z')),
                CASE WHEN (c.metadata ->> 'owner_id')::uuid = $3 THEN 'user'
                     WHEN c.org_id = '{PUBLIC}' THEN 'global' ELSE 'team' END
            FROM (
                SELECT * FROM (
                    SELECT DISTINCT ON (v.source_id) v.no, v.source_id, v.source_type, v.date,
                        v.embedding <=> $1 AS distance
                    FROM %1$I v
                    WHERE v.org_id = ANY ($2) AND (v.private_to IS NULL OR v.private_to = $3)
                        AND v.source_type = ANY ($4)
                        AND ($5 <> 'competitor_intel' OR v.source_type <> 'listing'
                            OR v.x_status IS NULL OR v.x_status = 'active')
                        AND ($6 IS NULL OR v.x_market = $6)
                        AND ($7 IS NULL OR v.date >= $7)
                        AND ($8 IS NULL OR v.date <= $8)
                    ORDER BY v.source_id, v.embedding <=> $1, v.id
                ) by_source ORDER BY distance, source_id LIMIT $9
            ) best JOIN %2$I c USING (no)
            ORDER BY best.distance, best.source_id
            $query$, generation || '_vectors', generation || '_chunks')
        USING p_query_embedding, rag_organizations(), rag_user(), source_types, p_capability, p_market,
            extract(epoch FROM p_time_range_from)::double precision,
            extract(epoch FROM p_time_range_to)::double precision, p_top_k;
    END $function$
"""

SEARCHES = [
    "rag_match(vector, integer, jsonb)",
    "match_embeddings(vector, double precision, integer, uuid, uuid, text[])",
    "search_rag_context(vector, uuid, text, text, timestamptz, timestamptz, integer)",
]
COMMENTS = ["index org_knowledge", "index store_catalogue, one site of one tenant", "index marketplace, a row a source"]

TENANT = "org_id = ANY ((SELECT rag_organizations())::uuid[])"
READER = "(private_to IS NULL OR private_to = (SELECT rag_user()) OR {operator})"


def upgrade() -> None:
    for statement in IDENTITY:
        op.execute(statement)
    for function, setting in SETTINGS.items():
        op.execute(
            f"CREATE OR REPLACE FUNCTION {function} LANGUAGE sql STABLE PARALLEL SAFE "
            f"RETURN CASE WHEN rag_application() THEN {setting} ELSE {OTHERS[function]} END"
        )
    generation_policies("(SELECT rag_operator())")
    path = f"public, {schema_of_vector()}, pg_temp"
    for function in (GENERATION, RAG_MATCH, MATCH_EMBEDDINGS, SEARCH_RAG_CONTEXT):
        op.get_bind().exec_driver_sql(function)
    for function in ("rag_generation(text, vector, integer)", *SEARCHES):
        op.execute(f"ALTER FUNCTION {function} SET search_path = {path}")
    op.execute(
        "COMMENT ON FUNCTION rag_generation IS 'Checks a search; what the names of the tables to search begin with'"
    )
    for function, searched in zip(SEARCHES, COMMENTS, strict=True):
        op.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
        op.execute(
            f"COMMENT ON FUNCTION {function} IS 'Exact search by cosine in {searched}, as the caller may see it'"
        )


def downgrade() -> None:
    # Before 0004 whoever may read the tables says itself for whom: the callers of the functions must not.
    op.execute(
        """
        DO $$
        DECLARE
            reader regrole;
            tables text;
        BEGIN
            SELECT string_agg(oid::regclass::text, ', ') INTO tables FROM pg_class WHERE relkind = 'r'
                AND relnamespace = 'public'::regnamespace AND (relname ~ '^g_.+_(chunks|vectors)$' OR relname = 'generations');
            FOR reader IN
                SELECT DISTINCT grantee FROM pg_proc, aclexplode(proacl)
                WHERE oid IN ('rag_match'::regproc, 'match_embeddings'::regproc, 'search_rag_context'::regproc)
                    AND grantee <> 0 AND NOT has_table_privilege(grantee, 'memberships', 'INSERT')
            LOOP
                EXECUTE format('REVOKE ALL ON %s FROM %s', tables, reader);
            END LOOP;
        END $$
        """
    )
    for function in SEARCHES:
        op.execute(f"DROP FUNCTION {function}")
    op.execute("DROP FUNCTION rag_generation(text, vector, integer)")
    generation_policies("((SELECT current_setting('rag.operator', true)) = 'on')")
    for function, setting in SETTINGS.items():
        op.execute(f"CREATE OR REPLACE FUNCTION {function} LANGUAGE sql STABLE PARALLEL SAFE RETURN {setting}")
    for name in ("rag_claimed_organizations", "rag_claimed_user", "rag_subject", "rag_application"):
        op.execute(f"DROP FUNCTION {name}()")


def generation_policies(operator: str) -> None:
    """Of the tables that vector stores made so far."""
    tables = op.get_bind().scalars(
        text(
            "SELECT polrelid::regclass::text FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid"
            " WHERE polname = 'tenant' AND relnamespace = 'public'::regnamespace"
            " AND relname ~ '^g_.+_(chunks|vectors|postings)$'"
        )
    )
    for table in tables.all():
        op.execute(f"ALTER POLICY tenant ON {table} USING ({TENANT} AND {READER.format(operator=operator)})")


def schema_of_vector() -> str:
    schema = op.get_bind().scalar(
        text("SELECT quote_ident(nspname) FROM pg_type JOIN pg_namespace n ON n.oid = typnamespace"
             " WHERE pg_type.oid = to_regtype('vector')")
    )  # fmt: skip
    if schema is None:
        raise CommandError("there is no type vector: CREATE EXTENSION vector, as a superuser, in this database")
    return str(schema)
