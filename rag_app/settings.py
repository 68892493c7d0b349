"""Every setting: its name, default, unit and reason. Read from the environment and from `.env`, in app and cli alone.

docs/settings.md and .env.example are written from here (`make docs`).
A variable that starts with RAG_ or LEXYBRAIN_RAG_ and is not here is refused, so that a slip of the pen does not pass
for a choice. Other LEXYBRAIN_ variables are those of LexyBrain Insights: only what is nearly the name of one here is refused.
"""

import difflib
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, get_type_hints

from dotenv import dotenv_values
from platformdirs import user_data_path
from pydantic import AfterValidator, DirectoryPath, Field, Json, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from rag_app.answering.providers import EXTRACTIVE, PROVIDERS
from rag_app.documents.limits import Limits
from rag_app.domain import MOST_REQUESTS, Misconfigured, require, resource_folder
from rag_app.retrieval.embedders import EMBEDDERS
from rag_app.stores.registry import STORES

_ENV_FILE = ".env"
_PROJECT = (".rag", "pyproject.toml", ".git")

Limit = Annotated[int, Field(ge=0, le=MOST_REQUESTS)]


def one_of(names: Callable[[], Collection[str]]) -> AfterValidator:
    """One of the names of a registry, as they are when the value is read: a module may have added one."""

    def check(value: str) -> str:
        if value not in names():
            raise PydanticCustomError(
                "literal_error", "Input should be {expected}", {"expected": _either(map(repr, names()))}
            )
        return value

    return AfterValidator(check)


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _origin(url: str) -> str:
    """Scheme, host and port of a URL.

    >>> _origin("https://rag.example/")
    'https://rag.example'
    """
    origin = url.removesuffix("/")
    if not re.fullmatch(r"https?://[A-Za-z0-9._\[\]:-]+", origin):
        raise PydanticCustomError(
            "origin",
            "must be scheme, host and port, as in https://rag.example: the pages cannot be served below a path",
        )
    return origin


def _kinds(hints: Mapping[str, str]) -> str:
    return _either(f"{kind} ({hint})" if hint else kind for kind, hint in hints.items())


def data_home(folder: Path) -> Path:
    """Where data is kept for commands in `folder`: `.rag` in the nearest project, or else the user's own data folder.

    A project is a folder that has `.rag`, `pyproject.toml` or `.git`: `folder`, or one above it that belongs to the same
    user. Nothing is created. The user's folder is that of the system (`$XDG_DATA_HOME/rag_app` on Linux).

    >>> data_home(Path("/")) == user_data_path("rag_app")
    True
    """
    here = folder.resolve()
    owned = (each for each in (here, *here.parents) if each == here or each.stat().st_uid == os.geteuid())
    for each in owned:
        if each != Path.home() and any((each / mark).exists() for mark in _PROJECT):
            return each / ".rag"
    return user_data_path("rag_app")


class _Settings(BaseSettings):
    model_config = SettingsConfigDict(env_file=_ENV_FILE, extra="ignore", env_ignore_empty=True)


class DatabaseSettings(_Settings):
    """PostgreSQL. Without a URL, a private server is started, with its data in RAG_HOME."""

    home: Path = Field(
        default_factory=lambda: data_home(Path.cwd()),
        alias="RAG_HOME",
        description="folder for private PostgreSQL, local Qdrant and secrets; by default `.rag` of the project, or the user's data folder",
    )
    url: SecretStr | None = Field(
        None,
        alias="RAG_DATABASE_URL",
        description="postgresql:// URL of the application's role, which must not bypass row-level security",
    )
    owner_url: SecretStr | None = Field(
        None,
        alias="RAG_DATABASE_OWNER_URL",
        description="postgresql:// URL of the role that owns the schema; used by `db upgrade`, `restore`, `indexes` rebuild, drop, move",
    )
    backup_url: SecretStr | None = Field(
        None,
        alias="RAG_DATABASE_BACKUP_URL",
        description="postgresql:// URL of a role that reads all rows (BYPASSRLS); only `rag-app backup` needs it",
    )
    gateway_role: str | None = Field(
        None,
        alias="RAG_DATABASE_GATEWAY_ROLE",
        description="role of a gateway such as PostgREST that calls the SQL functions (docs/sql.md); `db upgrade` grants it EXECUTE on them",
    )
    pool_size: int = Field(
        10,
        alias="RAG_DATABASE_POOL_SIZE",
        ge=2,
        le=200,
        description="maximum number of connections in each of a process's two pools, one for searches and one for everything else",
    )


class IndexSettings(_Settings):
    """The built-in indexes and your own."""

    folder: DirectoryPath | None = Field(
        None,
        alias="RAG_INDEXES",
        description="folder with your own indexes, each a folder with an index.toml; one with the name of a built-in index replaces it",
    )

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where indexes are declared; a later folder's come before an earlier one's of the same name."""
        return (resource_folder("indexes"), *((self.folder,) if self.folder else ()))

    def file(self, index: str, name: str) -> Path:
        """A file in the folder of an index, which may not be there."""
        declared = [folder / index for folder in self.folders if (folder / index / "index.toml").is_file()]
        return (declared or [self.folders[0] / index])[-1] / name


class StoreSettings(_Settings):
    """The vector store; an index may override the choice in its index.toml."""

    kind: Annotated[str, one_of(lambda: STORES)] = Field(
        "postgres", alias="RAG_VECTOR_STORE", description=_either(STORES)
    )
    class_file: Path | None = Field(
        None,
        alias="RAG_VECTOR_STORE_FILE",
        description="TOML file that declares the LlamaIndex vector store of `llamaindex`: docs/stores.md",
    )
    qdrant_url: str | None = Field(None, alias="QDRANT_URL", description="URL of a Qdrant server or cluster")
    qdrant_api_key: SecretStr | None = Field(
        None, alias="QDRANT_API_KEY", description="API key of the Qdrant server or cluster"
    )
    qdrant_path: Path | None = Field(
        None,
        alias="QDRANT_PATH",
        description="folder of a local Qdrant, for one process and small sets; RAG_HOME/qdrant if QDRANT_URL is not set either",
    )


class EmbeddingSettings(_Settings):
    """The embedding model. After a change the indexes must be rebuilt."""

    kind: Annotated[str, one_of(lambda: EMBEDDERS)] = Field(
        "builtin",
        alias="RAG_EMBEDDING",
        description=_kinds({kind: embedder.hint for kind, embedder in EMBEDDERS.items()}),
    )
    model: str = Field(
        "text-embedding-3-small",
        alias="RAG_EMBEDDING_MODEL",
        description="name of the embedding model; ignored with builtin",
    )
    api_base: str | None = Field(
        None, alias="RAG_EMBEDDING_API_BASE", description="base URL of the embedding API; OpenAI's by default"
    )
    api_key: SecretStr | None = Field(
        None, alias="RAG_EMBEDDING_API_KEY", description="API key for embeddings; OPENAI_API_KEY by default"
    )
    dimension: int = Field(
        1536,
        alias="RAG_EMBEDDING_DIMENSION",
        ge=2,
        le=8192,
        description="length of the model's vectors; ignored with builtin",
    )


class ModelSettings(_Settings):
    """The model that writes answers. Without one, answers consist of cited sentences from the sources."""

    kind: Annotated[str, one_of(lambda: (EXTRACTIVE, *PROVIDERS))] = Field(
        EXTRACTIVE,
        alias="RAG_LLM",
        description=_kinds({EXTRACTIVE: "", **{kind: provider.hint for kind, provider in PROVIDERS.items()}}),
    )
    model: str | None = Field(
        None,
        alias="RAG_LLM_MODEL",
        description=f"default by kind: {', '.join(f'{kind} {provider.model}' for kind, provider in PROVIDERS.items())}",
    )
    api_base: str | None = Field(
        None, alias="RAG_LLM_API_BASE", description="base URL of an OpenAI-compatible endpoint or gateway"
    )
    api_key: SecretStr | None = Field(
        None,
        alias="RAG_LLM_API_KEY",
        description="API key of the answering model; by default LOVABLE_API_KEY or OPENAI_API_KEY, for huggingface HF_TOKEN",
    )
    temperature: float = Field(
        0.1,
        alias="RAG_LLM_TEMPERATURE",
        ge=0,
        le=2,
        description="sampling temperature; a low one keeps answers close to the sources",
    )
    max_tokens: int = Field(
        1024, alias="RAG_LLM_MAX_TOKENS", ge=16, le=32768, description="maximum number of tokens in an answer"
    )
    timeout: float = Field(
        60.0, alias="RAG_LLM_TIMEOUT", gt=0, le=600, description="timeout of a request to the model, in seconds"
    )
    backoff: float = Field(
        1.0, alias="RAG_LLM_BACKOFF", ge=0, le=60, description="seconds before the one retry after a timeout"
    )
    unavailable_wait: float = Field(
        2.0, alias="RAG_LLM_UNAVAILABLE_WAIT", ge=0, le=60, description="seconds before the one retry after a 503"
    )

    input_price: Decimal = Field(
        Decimal(250),
        alias="RAG_LLM_INPUT_PRICE",
        ge=0,
        le=1_000_000,
        description="price in cents of a million input tokens, for models without a price in RAG_MODELS_FILE",
    )
    output_price: Decimal = Field(
        Decimal(1000),
        alias="RAG_LLM_OUTPUT_PRICE",
        ge=0,
        le=1_000_000,
        description="the same for output tokens; both defaults are high, so that an unknown model does not exceed the daily cost cap",
    )
    models_file: Path | None = Field(
        None,
        alias="RAG_MODELS_FILE",
        description="TOML file with a model for each capability, prices, an embedder and rerankers: docs/models.md, docs/own_models.md",
    )

    @property
    def name(self) -> str:
        """The model's, as its endpoint knows it. Extractive answers have none."""
        return self.model or PROVIDERS[self.kind].model


class LexyBrainSettings(_Settings):
    """Ask LexyBrain: conversations, under /api/lexybrain."""

    enabled: bool = Field(
        True,
        alias="LEXYBRAIN_RAG_ENABLED",
        description="false: /api/lexybrain answers 503 feature_disabled to everybody",
    )
    model_id: str = Field(
        "meta-llama/Llama-3.1-70B-Instruct",
        alias="LEXYBRAIN_RAG_MODEL_ID",
        description="model for conversations at Hugging Face; used if HF_TOKEN is set and RAG_LLM is not set or huggingface",
    )
    daily_cost_cap: int = Field(
        10_000,
        alias="LEXYBRAIN_DAILY_COST_CAP",
        ge=0,
        le=1_000_000_000,
        description="maximum cents for all users' answers in a day (UTC); then conversations return 503 cost_cap_reached; 0 allows none",
    )
    detection: Literal["heuristic", "model"] = Field(
        "heuristic",
        alias="LEXYBRAIN_RAG_DETECTION",
        description="how the capability of a message is detected if the request names none: heuristic (by words) or model",
    )
    rewrite: bool = Field(
        False,
        alias="LEXYBRAIN_RAG_REWRITE",
        description="true: a model rewrites a follow-up before the search; false: it is searched together with the user's previous question",
    )
    history_tokens: int = Field(
        1500,
        alias="LEXYBRAIN_RAG_HISTORY_TOKENS",
        ge=0,
        le=100_000,
        description="maximum number of tokens of a thread's history in a prompt (at most the last ten messages)",
    )
    token_budget: int | None = Field(
        None,
        alias="LEXYBRAIN_RAG_TOKEN_BUDGET",
        ge=0,
        le=1_000_000_000_000,
        description="maximum number of tokens that an organization may use in a month (UTC), on all surfaces; unlimited by default",
    )


class ReadingSettings(_Settings):
    """Limits for reading one file. A file that exceeds one is refused with the name of the limit; the other files are ingested."""

    processes: int = Field(
        2,
        alias="RAG_READ_PROCESSES",
        ge=1,
        le=64,
        description="number of processes that read files ahead; more rarely help, because embedding is slower than reading",
    )
    seconds: float = Field(
        Limits.seconds,
        alias="RAG_READ_SECONDS",
        gt=0,
        le=86_400,
        description="maximum time in seconds to read a file, or a line of JSON Lines; a page of a PDF takes about 0.1 s",
    )
    memory: int = Field(
        Limits.memory,
        alias="RAG_READ_MEMORY",
        ge=256,
        le=1_048_576,
        description="maximum memory in MB of a process that reads files",
    )
    unpacked: int = Field(
        Limits.unpacked,
        alias="RAG_READ_UNPACKED",
        ge=1,
        le=1_048_576,
        description="maximum size in MB of an unpacked file; JSON Lines have no such limit, because they are read piece by piece",
    )
    characters: int = Field(
        Limits.characters,
        alias="RAG_READ_CHARACTERS",
        ge=1,
        le=10_000_000_000,
        description="maximum number of characters in a document; the default is about ten thick books, which take half an hour to embed",
    )
    passages: int = Field(
        Limits.passages,
        alias="RAG_READ_PASSAGES",
        ge=1,
        le=1_000_000_000,
        description="maximum number of passages in a document: sections, pages and groups of rows",
    )
    pages: int = Field(
        Limits.pages,
        alias="RAG_READ_PAGES",
        ge=1,
        le=1_000_000,
        description="maximum number of pages in a PDF, or of slides in a presentation",
    )
    nesting: int = Field(
        Limits.nesting,
        alias="RAG_READ_NESTING",
        ge=10,
        le=400,
        description="maximum levels of nested HTML elements, JSON values and metadata; limited by Python's stack",
    )


class UploadSettings(_Settings):
    """Limits for uploads over HTTP (docs/sources.md). A request that exceeds one is refused with the name of the limit."""

    megabytes: int = Field(
        50,
        alias="RAG_UPLOAD_MEGABYTES",
        ge=1,
        le=4096,
        description="maximum size in MB of a request, and of a document read from a URL",
    )
    documents: int = Field(
        100,
        alias="RAG_UPLOAD_DOCUMENTS",
        ge=1,
        le=1000,
        description="maximum number of documents or files in a request",
    )
    at_once: int = Field(
        1,
        alias="RAG_UPLOAD_AT_ONCE_MEGABYTES",
        ge=0,
        le=4096,
        description="requests up to this size in MB are answered when their documents are searchable; larger ones become jobs",
    )
    seconds: float = Field(
        300.0,
        alias="RAG_UPLOAD_SECONDS",
        gt=0,
        le=86_400,
        description="maximum time in seconds until the body of a request has arrived",
    )
    sources: int | None = Field(
        None,
        alias="RAG_ORGANIZATION_SOURCES",
        ge=0,
        le=1_000_000_000,
        description="maximum number of sources of an organization, counted over all its indexes; unlimited by default",
    )
    total: int | None = Field(
        None,
        alias="RAG_ORGANIZATION_MEGABYTES",
        ge=0,
        le=1_000_000_000,
        description="maximum size in MB of an organization's texts and originals; unlimited by default",
    )
    originals: Literal["none", "files"] = Field(
        "none",
        alias="RAG_ORIGINALS",
        description="files: uploaded files are kept and can be downloaded again; none: they are not",
    )
    originals_folder: Path | None = Field(
        None,
        alias="RAG_ORIGINALS_FOLDER",
        description="folder of the files that RAG_ORIGINALS keeps; RAG_HOME/originals by default",
    )
    url_networks: str = Field(
        "",
        alias="RAG_URL_NETWORKS",
        description="private networks that documents may be read from by URL, separated by commas: 10.1.0.0/16; none by default",
    )


class JobSettings(_Settings):
    """Background jobs (docs/jobs.md): who processes them, and how long they can be read."""

    worker: bool = Field(
        True,
        alias="RAG_SERVE_WORKER",
        description="true: `rag-app serve` also starts a worker; false: jobs wait for a `rag-app worker`",
    )
    niceness: int = Field(
        10,
        alias="RAG_WORKER_NICENESS",
        ge=0,
        le=19,
        description="how far the priority of workers is lowered (as with `nice`), so that searches come first on a busy machine",
    )
    days: int = Field(
        7,
        alias="RAG_JOB_DAYS",
        ge=1,
        le=3650,
        description="number of days after its end that a job can be read and retried",
    )


class ProviderSettings(_Settings):
    """API keys, under the names that the providers' own tools use."""

    openai_api_key: SecretStr | None = Field(
        None, alias="OPENAI_API_KEY", description="OpenAI's key, for embeddings and answers without a key of their own"
    )
    lovable_api_key: SecretStr | None = Field(
        None,
        alias="LOVABLE_API_KEY",
        description="key of the gateway at RAG_LLM_API_BASE; used before OPENAI_API_KEY",
    )
    hf_token: SecretStr | None = Field(
        None, alias="HF_TOKEN", description="Hugging Face's key, for answers by huggingface without a key of their own"
    )


class ConfidenceSettings(_Settings):
    """If one of these is set, /api/rag (index org_knowledge) judges by the mean of the five best hits instead of its calibrated rule."""

    high: float | None = Field(
        None,
        alias="RAG_CONFIDENCE_HIGH_THRESHOLD",
        ge=-1,
        le=1,
        description="confidence is high if the mean cosine of the five best hits reaches this (0.75 if only the other one is set)",
    )
    medium: float | None = Field(
        None,
        alias="RAG_CONFIDENCE_MEDIUM_THRESHOLD",
        ge=-1,
        le=1,
        description="confidence is medium if the mean reaches this; below it no answer is given (0.60 if only the other one is set)",
    )


class ApiSettings(_Settings):
    """The HTTP server and its tokens."""

    host: str = Field("127.0.0.1", alias="RAG_HOST", description="address to listen on")
    port: int = Field(8000, alias="RAG_PORT", ge=0, le=65535, description="port to listen on; 0 chooses a free one")
    workers: int = Field(
        1, alias="RAG_WORKERS", ge=1, le=64, description="number of server processes; one per core is a good start"
    )
    jwt_secret: SecretStr | None = Field(
        None,
        alias="RAG_JWT_SECRET",
        description="secret of at least 32 bytes that signs tokens (HS256); by default generated and stored in RAG_HOME",
    )
    jwt_jwks_url: str | None = Field(
        None,
        alias="RAG_JWT_JWKS_URL",
        description="https:// URL of an identity provider's keys (JWKS), for RS256 and ES256 tokens",
    )
    jwt_key_file: Path | None = Field(
        None,
        alias="RAG_JWT_KEY_FILE",
        description="file with these keys instead: a JWKS document, or public keys as PEM",
    )
    jwt_audience: str = Field("authenticated", alias="RAG_JWT_AUDIENCE", description="the `aud` that a token must have")
    jwt_issuer: str | None = Field(
        None, alias="RAG_JWT_ISSUER", description="the `iss` that a token must have; any by default"
    )
    jwt_groups: str = Field(
        "groups",
        alias="RAG_JWT_GROUPS",
        description="name of the claim that lists the groups of a token's user (docs/groups.md)",
    )
    session_cookie: str = Field(
        "rag_session",
        alias="RAG_SESSION_COOKIE",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="name of the cookie with a browser's token, on surfaces that accept a cookie (docs/authentication.md)",
    )
    origins: str = Field(
        "",
        alias="RAG_ORIGINS",
        description="origins whose pages may send this cookie, separated by commas: https://app.example",
    )
    default_organization: str | None = Field(
        None,
        alias="RAG_DEFAULT_ORGANIZATION",
        description="slug or id of an organization; callers without a credential see what its members see, on surfaces that allow it",
    )
    hosts: str = Field(
        "",
        alias="RAG_HOSTS",
        description="host names besides localhost that callers without a credential may use, separated by commas: salon.example",
    )
    requests: Json[dict[str, Limit]] = Field(
        {},
        validate_default=False,
        alias="RAG_REQUESTS_PER_MINUTE",
        description='limit of a caller\'s requests per minute for each surface, as JSON: {"rag_retrieval": 600}; 0: no limit (docs/limits.md)',
    )
    concurrent: Json[dict[str, Limit]] = Field(
        {},
        validate_default=False,
        alias="RAG_CONCURRENT_REQUESTS",
        description="the same for requests at the same time",
    )


class PagesSettings(_Settings):
    """The pages for browsers, at `/`: docs/pages.md."""

    shown: Literal["on", "off", "demo"] = Field(
        "on",
        alias="RAG_PAGES",
        description="on; off: only the API is served; demo (set by `rag-app demo`): browsers on this machine are signed in as sample users",
    )
    public_url: Annotated[str, AfterValidator(_origin)] | None = Field(
        None,
        alias="RAG_PUBLIC_URL",
        description="URL at which browsers reach this server, such as https://rag.example; by default that of the running server",
    )
    session_hours: float = Field(
        12,
        alias="RAG_SESSION_HOURS",
        gt=0,
        le=8760,
        description="hours after which a session ends",
    )
    idle_minutes: float = Field(
        120,
        alias="RAG_SESSION_IDLE_MINUTES",
        gt=1,
        le=525_600,
        description="minutes without a request after which a session ends",
    )
    tries: int = Field(
        60,
        alias="RAG_SIGN_IN_TRIES",
        ge=1,
        le=MOST_REQUESTS,
        description="maximum number of attempts to sign in from one address in any 60 seconds; all users behind a proxy share one address",
    )


class OidcSettings(_Settings):
    """The OpenID Connect provider that signs people in to the pages: docs/pages.md."""

    issuer: str | None = Field(
        None,
        alias="RAG_OIDC_ISSUER",
        description="https:// URL of the provider, exactly as its discovery document names it; without it, nobody signs in at a provider",
    )
    client_id: str | None = Field(
        None, alias="RAG_OIDC_CLIENT_ID", min_length=1, description="client id of this server at the provider"
    )
    client_secret: SecretStr | None = Field(
        None,
        alias="RAG_OIDC_CLIENT_SECRET",
        min_length=1,
        description="client secret; leave it unset for a public client, which only PKCE protects",
    )
    scopes: str = Field(
        "openid",
        alias="RAG_OIDC_SCOPES",
        description="scopes to request, separated by spaces: openid, and any that the provider requires for the groups claim",
    )


class RetentionSettings(_Settings):
    """Deletion by age, off by default. docs/privacy.md says what is deleted together."""

    threads: int | None = Field(
        None,
        alias="RAG_RETENTION_DAYS_THREADS",
        ge=1,
        le=36_500,
        description="days after its last message until a thread is deleted, with its messages and feedback",
    )
    judgments: int | None = Field(
        None,
        alias="RAG_RETENTION_DAYS_JUDGMENTS",
        ge=1,
        le=36_500,
        description="days until a judgment is deleted, whoever made it",
    )
    usage: int | None = Field(
        None,
        alias="RAG_RETENTION_DAYS_USAGE",
        ge=1,
        le=36_500,
        description="days until usage events are deleted, and counters of past months",
    )
    failures: int | None = Field(
        None,
        alias="RAG_RETENTION_DAYS_FAILURES",
        ge=1,
        le=36_500,
        description="days until recorded failures of models and other parts are deleted",
    )


class TelemetrySettings(_Settings):
    """Logs, metrics, traces and errors, for operators: docs/telemetry.md. OpenTelemetry's own OTEL_ variables apply, too."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", alias="RAG_LOG_LEVEL", description="lowest level that is logged: debug, info, warning or error"
    )
    log_format: Literal["text", "json"] = Field(
        "text", alias="RAG_LOG_FORMAT", description="text, or json (one object per line)"
    )
    metrics: bool = Field(
        False, alias="RAG_METRICS", description="true: GET /metrics returns metrics in Prometheus' format"
    )
    metrics_token: SecretStr | None = Field(
        None,
        alias="RAG_METRICS_TOKEN",
        min_length=16,
        description="bearer token of at least 16 characters that /metrics requires; without one, only callers on this machine may read it",
    )
    traces: Literal["none", "otlp", "console"] = Field(
        "none", alias="RAG_TRACES", description="where traces are sent: none, otlp (HTTP) or console (stderr)"
    )
    sentry_dsn: SecretStr | None = Field(
        None, alias="RAG_SENTRY_DSN", description="DSN of the Sentry project that receives errors"
    )


def _describe_problem(name: str, value: object) -> str:
    """What is wrong, without a value that is for nobody's log.

    >>> _describe_problem("RAG_PORT", "http"), _describe_problem("RAG_METRICS_TOKEN", "short")
    ("RAG_PORT='http'", 'RAG_METRICS_TOKEN')
    """
    secret = name.endswith(("KEY", "SECRET", "TOKEN", "URL", "DSN")) and name != "RAG_PUBLIC_URL"
    return name if secret else f"{name}={value!r}"


class Settings:
    """All of them, read once.

    Raises Misconfigured for a value that is not accepted and for a RAG_ or LEXYBRAIN_ variable that is a slip.
    """

    database: DatabaseSettings
    indexes: IndexSettings
    store: StoreSettings
    embedding: EmbeddingSettings
    model: ModelSettings
    lexybrain: LexyBrainSettings
    reading: ReadingSettings
    uploads: UploadSettings
    jobs: JobSettings
    providers: ProviderSettings
    confidence: ConfidenceSettings
    api: ApiSettings
    pages: PagesSettings
    oidc: OidcSettings
    retention: RetentionSettings
    telemetry: TelemetrySettings

    def __init__(self) -> None:
        _refuse_unknown()
        try:
            for name, group in get_type_hints(Settings).items():
                setattr(self, name, group())
        except ValidationError as error:
            problems = [
                f"{_describe_problem(str(each['loc'][0]), each['input'])}: {each['msg']}" for each in error.errors()
            ]
            raise Misconfigured("; ".join(problems)) from None
        keys = ("jwt_secret", "jwt_jwks_url", "jwt_key_file")
        chosen = [f"RAG_{name.upper()}" for name in keys if getattr(self.api, name) is not None]
        if len(chosen) > 1:
            raise Misconfigured(f"{' and '.join(chosen)} are set: tokens are signed with one of them; unset the other")
        if (self.oidc.issuer is None) != (self.oidc.client_id is None):
            raise Misconfigured("RAG_OIDC_ISSUER and RAG_OIDC_CLIENT_ID go together: set both, or none")

    @property
    def names_models(self) -> bool:
        """Whether a model may write answers, or a file says more about models."""
        wanted = self.model.kind != EXTRACTIVE or self.providers.hf_token is not None
        return wanted or self.model.models_file is not None

    def jwt_secret(self) -> str:
        """The configured secret, or the one kept under RAG_HOME, generated at first use (readable by its owner).

        Raises Misconfigured where tokens are signed by somebody else.
        """
        if signer := self.api.jwt_jwks_url or self.api.jwt_key_file:
            raise Misconfigured(
                f"`rag-app token` is not available: tokens are issued by the owner of the keys in {signer}"
            )
        if self.api.jwt_secret is not None:
            return self.api.jwt_secret.get_secret_value()
        file = self.database.home / "jwt-secret"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            fresh = file.with_name(f"jwt-secret.{os.getpid()}")
            fresh.touch(mode=0o600)
            fresh.write_text(secrets.token_urlsafe(48))
            try:
                with suppress(FileExistsError):
                    os.link(fresh, file)  # of two processes that start at once, one wins
            finally:
                fresh.unlink()
        return file.read_text()


GROUPS: tuple[type[_Settings], ...] = tuple(get_type_hints(Settings).values())
_SLIP = 0.905  # likeness of names: LEXYBRAIN_MODEL_ID, of LexyBrain Insights, has 0.900 of LEXYBRAIN_RAG_MODEL_ID
_NOT_OURS = frozenset({"RAG_TEST_OWNER_URL", "RAG_TEST_APP_URL", "RAG_SHARED"})


def variable(name: str) -> SecretStr | None:
    """A variable that a file of the operator's names: of the environment, or else of `.env`. Empty is not set."""
    value = os.environ.get(name) or dotenv_values(_ENV_FILE).get(name)
    return SecretStr(value) if value else None


def secret(reference: str) -> SecretStr:
    """What "env:NAME" or "file:/path" refers to, in a file of the operator's. Raises Misconfigured where it is not there."""
    where, _, name = reference.partition(":")
    if where == "file":
        try:
            return SecretStr(Path(name).read_text("utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            raise Misconfigured(f"secret file:{name}: {type(error).__name__}") from None
    return require(  # the name is not shown: it may be the secret itself, in the wrong place
        variable(name) if where == "env" else None,
        Misconfigured("The environment variable that holds this secret is not set. Set it, or name a file"),
    )


def fields() -> Iterator[tuple[type[_Settings], FieldInfo]]:
    for group in GROUPS:
        for info in group.model_fields.values():
            yield group, info


def _refuse_unknown() -> None:
    known = {str(info.alias) for _, info in fields()} | _NOT_OURS
    for name in sorted({*os.environ, *dotenv_values(_ENV_FILE)}):
        ours = name.startswith(("RAG_", "LEXYBRAIN_RAG_"))
        if name in known or not (ours or name.startswith("LEXYBRAIN_")):
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.75 if ours else _SLIP)
        if ours or close:
            hint = f"; did you mean {close[0]}?" if close else "; docs/settings.md lists those there are"
            raise Misconfigured(f"there is no setting {name}{hint}")
