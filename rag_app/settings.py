"""Every setting: its name, default, unit and reason. Read from the environment and from `.env`, in app and cli alone.

docs/settings.md and .env.example are written from here (`make docs`).
A variable that starts with RAG_ or LEXYBRAIN_RAG_ and is not here is refused, so that a slip of the pen does not pass
for a choice. Other LEXYBRAIN_ variables are those of LexyBrain Insights.
"""

import difflib
import os
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
from rag_app.domain import MOST_REQUESTS, Misconfigured, resource_folder
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
    """PostgreSQL. With no URL a private server is started, with its data under RAG_HOME."""

    home: Path = Field(
        default_factory=lambda: data_home(Path.cwd()),
        alias="RAG_HOME",
        description="folder for PostgreSQL, local Qdrant and secrets; by default `.rag` of the project, or the user's data folder",
    )
    url: SecretStr | None = Field(
        None,
        alias="RAG_DATABASE_URL",
        description="postgresql:// URL of the application's role, which must not bypass row-level security",
    )
    owner_url: SecretStr | None = Field(
        None,
        alias="RAG_DATABASE_OWNER_URL",
        description="postgresql:// URL of the role that migrates and builds generations; only `db upgrade` needs it",
    )
    backup_url: SecretStr | None = Field(
        None,
        alias="RAG_DATABASE_BACKUP_URL",
        description="postgresql:// URL of a role that reads all rows (BYPASSRLS); only `rag-app backup` needs it",
    )
    gateway_role: str | None = Field(
        None,
        alias="RAG_DATABASE_GATEWAY_ROLE",
        description="role that PostgREST, say, takes on to call the SQL functions; `db upgrade` grants it that use",
    )
    pool_size: int = Field(
        10,
        alias="RAG_DATABASE_POOL_SIZE",
        ge=2,
        le=200,
        description="connections a process keeps at most, for requests and for the vector store each",
    )


class IndexSettings(_Settings):
    """The indexes: those that come with rag_app, and your own."""

    folder: DirectoryPath | None = Field(
        None,
        alias="RAG_INDEXES",
        description="folder with indexes of your own, each a folder with an index.toml; one replaces another of its name",
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
    qdrant_api_key: SecretStr | None = Field(None, alias="QDRANT_API_KEY", description="key of that server or cluster")
    qdrant_path: Path | None = Field(
        None,
        alias="QDRANT_PATH",
        description="folder of local Qdrant, for one process and small sets; RAG_HOME/qdrant where neither is set",
    )


class EmbeddingSettings(_Settings):
    """The embedding model. Changing it needs a rebuild of the indexes."""

    kind: Annotated[str, one_of(lambda: EMBEDDERS)] = Field(
        "builtin",
        alias="RAG_EMBEDDING",
        description=_kinds({kind: embedder.hint for kind, embedder in EMBEDDERS.items()}),
    )
    model: str = Field("text-embedding-3-small", alias="RAG_EMBEDDING_MODEL", description="model name; not for builtin")
    api_base: str | None = Field(None, alias="RAG_EMBEDDING_API_BASE", description="base URL; OpenAI's where not set")
    api_key: SecretStr | None = Field(
        None, alias="RAG_EMBEDDING_API_KEY", description="key; OPENAI_API_KEY where not set"
    )
    dimension: int = Field(
        1536,
        alias="RAG_EMBEDDING_DIMENSION",
        ge=2,
        le=8192,
        description="length of the model's vectors; not for builtin",
    )


class ModelSettings(_Settings):
    """The model that writes answers. Without one, answers are extracted: sentences of the sources, cited."""

    kind: Annotated[str, one_of(lambda: (EXTRACTIVE, *PROVIDERS))] = Field(
        EXTRACTIVE,
        alias="RAG_LLM",
        description=_kinds({EXTRACTIVE: "", **{kind: provider.hint for kind, provider in PROVIDERS.items()}}),
    )
    model: str | None = Field(
        None,
        alias="RAG_LLM_MODEL",
        description=f"unless set, {', '.join(f'{kind}: {provider.model}' for kind, provider in PROVIDERS.items())}",
    )
    api_base: str | None = Field(
        None, alias="RAG_LLM_API_BASE", description="base URL of an OpenAI-compatible endpoint or gateway"
    )
    api_key: SecretStr | None = Field(
        None,
        alias="RAG_LLM_API_KEY",
        description="key; LOVABLE_API_KEY or OPENAI_API_KEY, or HF_TOKEN for huggingface, where not set",
    )
    temperature: float = Field(
        0.1, alias="RAG_LLM_TEMPERATURE", ge=0, le=2, description="low: answers are to stay with the sources"
    )
    max_tokens: int = Field(1024, alias="RAG_LLM_MAX_TOKENS", ge=16, le=32768, description="tokens an answer may take")
    timeout: float = Field(
        60.0, alias="RAG_LLM_TIMEOUT", gt=0, le=600, description="seconds a request to the model may take"
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
        description="cents for a million tokens that a model reads, if RAG_MODELS_FILE has no price for it",
    )
    output_price: Decimal = Field(
        Decimal(1000),
        alias="RAG_LLM_OUTPUT_PRICE",
        ge=0,
        le=1_000_000,
        description="the same for tokens that it writes; both rather too high, so that the cost cap holds",
    )
    models_file: Path | None = Field(
        None,
        alias="RAG_MODELS_FILE",
        description="TOML file of models by capability, prices, an embedder, rerankers: docs/models.md, docs/own_models.md",
    )

    @property
    def name(self) -> str:
        """The model's, as its endpoint knows it. Extractive answers have none."""
        return self.model or PROVIDERS[self.kind].model


class LexyBrainSettings(_Settings):
    """Ask LexyBrain: conversations, under /api/lexybrain."""

    enabled: bool = Field(True, alias="LEXYBRAIN_RAG_ENABLED", description="false: 503 feature_disabled for everybody")
    model_id: str = Field(
        "meta-llama/Llama-3.1-70B-Instruct",
        alias="LEXYBRAIN_RAG_MODEL_ID",
        description="model at Hugging Face, where HF_TOKEN is set and RAG_LLM names no other kind",
    )
    daily_cost_cap: int = Field(
        10_000,
        alias="LEXYBRAIN_DAILY_COST_CAP",
        ge=0,
        le=1_000_000_000,
        description="cents that a day's answers (UTC) may cost, of all users; then, and at 0: 503 cost_cap_reached",
    )
    detection: Literal["heuristic", "model"] = Field(
        "heuristic",
        alias="LEXYBRAIN_RAG_DETECTION",
        description="what tells the capability of a message that names none: heuristic or model",
    )
    rewrite: bool = Field(
        False,
        alias="LEXYBRAIN_RAG_REWRITE",
        description="true: a model rewrites a follow-up for retrieval; false: the message before joins it",
    )
    history_tokens: int = Field(
        1500,
        alias="LEXYBRAIN_RAG_HISTORY_TOKENS",
        ge=0,
        le=100_000,
        description="tokens that the last ten messages of a thread may take in a prompt",
    )
    token_budget: int | None = Field(
        None,
        alias="LEXYBRAIN_RAG_TOKEN_BUDGET",
        ge=0,
        le=1_000_000_000_000,
        description="tokens an organization may use in a month (UTC), on all surfaces; no limit where not set",
    )


class ReadingSettings(_Settings):
    """What one file may cost an ingest. What goes over is refused with the name of the limit; the other files go on."""

    processes: int = Field(
        2,
        alias="RAG_READ_PROCESSES",
        ge=1,
        le=64,
        description="processes that read ahead; embedding is slower than one",
    )
    seconds: float = Field(
        Limits.seconds,
        alias="RAG_READ_SECONDS",
        gt=0,
        le=86_400,
        description="seconds to read a file, or a line of JSON Lines; a page of a PDF takes about a tenth of one",
    )
    memory: int = Field(
        Limits.memory,
        alias="RAG_READ_MEMORY",
        ge=256,
        le=1_048_576,
        description="MB of memory that a process may take to read, so that no file takes the server's",
    )
    unpacked: int = Field(
        Limits.unpacked,
        alias="RAG_READ_UNPACKED",
        ge=1,
        le=1_048_576,
        description="MB that a file may unpack to, for it is held in memory; JSON Lines are not",
    )
    characters: int = Field(
        Limits.characters,
        alias="RAG_READ_CHARACTERS",
        ge=1,
        le=10_000_000_000,
        description="characters of a document: ten thick books, which take half an hour to embed",
    )
    passages: int = Field(
        Limits.passages,
        alias="RAG_READ_PASSAGES",
        ge=1,
        le=1_000_000_000,
        description="passages of a document: its sections, pages and groups of rows",
    )
    pages: int = Field(
        Limits.pages,
        alias="RAG_READ_PAGES",
        ge=1,
        le=1_000_000,
        description="pages of a PDF and slides of a presentation: as many as can be read in the time",
    )
    nesting: int = Field(
        Limits.nesting,
        alias="RAG_READ_NESTING",
        ge=10,
        le=400,
        description="levels of elements in HTML, of values in JSON and metadata; Python's stack allows not many more",
    )


class UploadSettings(_Settings):
    """What may be put in over HTTP (docs/sources.md). What is over a limit is refused with the limit's name."""

    megabytes: int = Field(
        50,
        alias="RAG_UPLOAD_MEGABYTES",
        ge=1,
        le=4096,
        description="most MB in one request, and read from one address",
    )
    documents: int = Field(
        100, alias="RAG_UPLOAD_DOCUMENTS", ge=1, le=1000, description="most documents or files in one request"
    )
    at_once: int = Field(
        8,
        alias="RAG_UPLOAD_AT_ONCE_MEGABYTES",
        ge=0,
        le=4096,
        description="MB up to which a request is answered when its documents answer; of a larger one a job is made",
    )
    seconds: float = Field(
        300.0, alias="RAG_UPLOAD_SECONDS", gt=0, le=86_400, description="seconds in which a request's body must arrive"
    )
    sources: int | None = Field(
        None,
        alias="RAG_ORGANIZATION_SOURCES",
        ge=0,
        le=1_000_000_000,
        description="sources that an organization may have, in all indexes",
    )
    total: int | None = Field(
        None,
        alias="RAG_ORGANIZATION_MEGABYTES",
        ge=0,
        le=1_000_000_000,
        description="MB that the texts and originals of an organization may take",
    )
    originals: Literal["none", "files"] = Field(
        "none", alias="RAG_ORIGINALS", description="files: uploaded files are kept, to be downloaded again; none"
    )
    originals_folder: Path | None = Field(
        None, alias="RAG_ORIGINALS_FOLDER", description="where they are kept; RAG_HOME/originals where not set"
    )
    url_networks: str = Field(
        "",
        alias="RAG_URL_NETWORKS",
        description="private networks that addresses of sources may be in: 10.1.0.0/16, comma-separated; none by default",
    )


class JobSettings(_Settings):
    """Who does jobs (docs/jobs.md), and for how long they can be asked about."""

    worker: bool = Field(
        True,
        alias="RAG_SERVE_WORKER",
        description="`rag-app serve` starts a worker beside it; false: jobs wait for a `rag-app worker`",
    )
    niceness: int = Field(
        10,
        alias="RAG_WORKER_NICENESS",
        ge=0,
        le=19,
        description="levels of priority that workers stand back by: searches come first on a busy machine",
    )
    days: int = Field(
        7, alias="RAG_JOB_DAYS", ge=1, le=3650, description="days after its end in which a job can be seen and retried"
    )


class ProviderSettings(_Settings):
    """Keys under the names that the providers' own tools use."""

    openai_api_key: SecretStr | None = Field(
        None, alias="OPENAI_API_KEY", description="for embeddings and answers that have no key of their own"
    )
    lovable_api_key: SecretStr | None = Field(
        None,
        alias="LOVABLE_API_KEY",
        description="for answers of the gateway at RAG_LLM_API_BASE, before OPENAI_API_KEY",
    )
    hf_token: SecretStr | None = Field(None, alias="HF_TOKEN", description="for answers by huggingface, likewise")


class ConfidenceSettings(_Settings):
    """Setting either has /api/rag (index org_knowledge) judge by the mean of the top five, not by its calibrated rule."""

    high: float | None = Field(
        None,
        alias="RAG_CONFIDENCE_HIGH_THRESHOLD",
        ge=-1,
        le=1,
        description="mean cosine of the five best hits from which confidence is high (0.75 if only the other is set)",
    )
    medium: float | None = Field(
        None,
        alias="RAG_CONFIDENCE_MEDIUM_THRESHOLD",
        ge=-1,
        le=1,
        description="the same for medium, below which no answer is given (0.60 if only the other is set)",
    )


class ApiSettings(_Settings):
    """The HTTP server and its tokens."""

    host: str = Field("127.0.0.1", alias="RAG_HOST", description="address to listen on")
    port: int = Field(8000, alias="RAG_PORT", ge=0, le=65535, description="port to listen on; 0: any that is free")
    workers: int = Field(
        1, alias="RAG_WORKERS", ge=1, le=64, description="processes that serve; a core each is a good start"
    )
    jwt_secret: SecretStr | None = Field(
        None,
        alias="RAG_JWT_SECRET",
        description="HS256 secret, 32 bytes or more; generated and kept under RAG_HOME where no key is configured",
    )
    jwt_jwks_url: str | None = Field(
        None,
        alias="RAG_JWT_JWKS_URL",
        description="https:// URL of an identity provider's keys (JWKS), for RS256 and ES256 tokens",
    )
    jwt_key_file: Path | None = Field(
        None, alias="RAG_JWT_KEY_FILE", description="the same keys in a file: JWKS, or public keys as PEM"
    )
    jwt_audience: str = Field("authenticated", alias="RAG_JWT_AUDIENCE", description="`aud` that tokens must carry")
    jwt_issuer: str | None = Field(
        None, alias="RAG_JWT_ISSUER", description="`iss` that tokens must carry; any where not set"
    )
    jwt_groups: str = Field(
        "groups", alias="RAG_JWT_GROUPS", description="claim that lists the groups of a token's user (docs/groups.md)"
    )
    session_cookie: str = Field(
        "rag_session",
        alias="RAG_SESSION_COOKIE",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="name of the cookie that holds a browser's token, where a surface takes one",
    )
    origins: str = Field(
        "",
        alias="RAG_ORIGINS",
        description="origins whose pages may send that cookie: https://app.example, comma-separated",
    )
    default_organization: str | None = Field(
        None,
        alias="RAG_DEFAULT_ORGANIZATION",
        description="slug or id: anybody without a credential reads its content, where a surface allows that",
    )
    hosts: str = Field(
        "",
        alias="RAG_HOSTS",
        description="hosts, beside loopback names, that callers without a credential may ask for: salon.example, comma-separated",
    )
    requests: Json[dict[str, Limit]] = Field(
        {},
        validate_default=False,
        alias="RAG_REQUESTS_PER_MINUTE",
        description='other limits of a caller\'s requests, by surface, as JSON: {"rag_retrieval": 600}; 0: none (docs/limits.md)',
    )
    concurrent: Json[dict[str, Limit]] = Field(
        {},
        validate_default=False,
        alias="RAG_CONCURRENT_REQUESTS",
        description="the same for requests under way at once",
    )


class PagesSettings(_Settings):
    """What a browser is shown at `/`: docs/pages.md."""

    shown: Literal["on", "off", "demo"] = Field(
        "on",
        alias="RAG_PAGES",
        description="off: the API alone; demo (`rag-app demo` sets it): browsers on this machine are signed in as sample users",
    )
    public_url: str | None = Field(
        None,
        alias="RAG_PUBLIC_URL",
        pattern=r"^https?://[A-Za-z0-9._\[\]:-]+$",
        description="where browsers reach this server: https://rag.example; RAG_HOST and RAG_PORT where not set",
    )
    session_hours: float = Field(
        12,
        alias="RAG_SESSION_HOURS",
        gt=0,
        le=8760,
        description="hours after which whoever is signed in signs in again",
    )
    idle_minutes: float = Field(
        120,
        alias="RAG_SESSION_IDLE_MINUTES",
        gt=1,
        le=525_600,
        description="the same in minutes without a request",
    )
    tries: int = Field(
        60,
        alias="RAG_SIGN_IN_TRIES",
        ge=1,
        le=MOST_REQUESTS,
        description="tries to sign in from one address in any 60 seconds; a proxy, and all behind it, is one address",
    )


class OidcSettings(_Settings):
    """The OpenID Connect provider that signs people in to the pages: docs/pages.md."""

    issuer: str | None = Field(
        None,
        alias="RAG_OIDC_ISSUER",
        description="https:// URL of the provider, as its discovery document names it; no such sign-in where not set",
    )
    client_id: str | None = Field(
        None, alias="RAG_OIDC_CLIENT_ID", min_length=1, description="what the provider calls this server"
    )
    client_secret: SecretStr | None = Field(
        None,
        alias="RAG_OIDC_CLIENT_SECRET",
        min_length=1,
        description="secret of that client; a public client, which PKCE protects alone, has none",
    )
    scopes: str = Field(
        "openid",
        alias="RAG_OIDC_SCOPES",
        description="scopes to ask for, with spaces between: openid, and one that brings the claim RAG_JWT_GROUPS, say",
    )


class RetentionSettings(_Settings):
    """How long rows are kept; where not set, until they are deleted otherwise. docs/privacy.md says what goes with them."""

    threads: int | None = Field(
        None,
        alias="RAG_RETENTION_DAYS_THREADS",
        ge=1,
        le=36_500,
        description="days that threads are kept from their last message, with messages and feedback",
    )
    judgments: int | None = Field(
        None,
        alias="RAG_RETENTION_DAYS_JUDGMENTS",
        ge=1,
        le=36_500,
        description="days that judgments are kept, whoever made them",
    )
    usage: int | None = Field(
        None,
        alias="RAG_RETENTION_DAYS_USAGE",
        ge=1,
        le=36_500,
        description="days that usage of answers is kept, and counters of months that are over",
    )
    failures: int | None = Field(
        None,
        alias="RAG_RETENTION_DAYS_FAILURES",
        ge=1,
        le=36_500,
        description="days that failures of models and of other parts are kept",
    )


class TelemetrySettings(_Settings):
    """Logs, metrics, traces and errors, for operators: docs/telemetry.md. OpenTelemetry's own OTEL_ variables hold."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", alias="RAG_LOG_LEVEL", description="least severe level that is logged"
    )
    log_format: Literal["text", "json"] = Field(
        "text", alias="RAG_LOG_FORMAT", description="text, or json: one object a line"
    )
    metrics: bool = Field(False, alias="RAG_METRICS", description="true: GET /metrics, in the format of Prometheus")
    metrics_token: SecretStr | None = Field(
        None,
        alias="RAG_METRICS_TOKEN",
        min_length=16,
        description="bearer token that /metrics asks for, 16 characters or more; without one, this machine alone may read it",
    )
    traces: Literal["none", "otlp", "console"] = Field(
        "none", alias="RAG_TRACES", description="where spans go: none, otlp (HTTP) or console (stderr)"
    )
    sentry_dsn: SecretStr | None = Field(None, alias="RAG_SENTRY_DSN", description="Sentry project that errors go to")


def _describe_problem(name: str, value: object) -> str:
    """What is wrong, without a value that is for nobody's log.

    >>> _describe_problem("RAG_PORT", "http"), _describe_problem("RAG_METRICS_TOKEN", "short")
    ("RAG_PORT='http'", 'RAG_METRICS_TOKEN')
    """
    return name if name.endswith(("KEY", "SECRET", "TOKEN", "URL", "DSN")) else f"{name}={value!r}"


class Settings:
    """All of them, read once.

    Raises Misconfigured for a value that is not accepted and for a RAG_ or LEXYBRAIN_RAG_ variable there is not.
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

    def jwt_secret(self) -> str:
        """The configured secret, or the one kept under RAG_HOME, generated at first use (readable by its owner).

        Raises Misconfigured where tokens are signed by somebody else.
        """
        if signer := self.api.jwt_jwks_url or self.api.jwt_key_file:
            raise Misconfigured(f"tokens are issued by whoever holds the private keys to those of {signer}, not here")
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
    found = variable(name) if where == "env" else None
    if found is None:  # it may be the secret itself that stands there: not shown
        raise Misconfigured("a secret: the variable that it names is not set; set it, or name a file")
    return found


def fields() -> Iterator[tuple[type[_Settings], FieldInfo]]:
    for group in GROUPS:
        for info in group.model_fields.values():
            yield group, info


def _refuse_unknown() -> None:
    known = {str(info.alias) for _, info in fields()} | _NOT_OURS
    for name in sorted({*os.environ, *dotenv_values(_ENV_FILE)}):
        if name.startswith(("RAG_", "LEXYBRAIN_RAG_")) and name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
            hint = f"; did you mean {close[0]}?" if close else "; docs/settings.md lists those there are"
            raise Misconfigured(f"there is no setting {name}{hint}")
