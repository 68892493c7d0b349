"""What a process loads: nothing for `--help`, and of the vendors those alone that are configured.

Each list is a new interpreter's, after it has done its work. How long that takes is `make bench`'s business.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

HELP = """
import json, sys
from rag_app.console.cli import main
sys.argv = ["rag-app", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

SERVED = """
import asyncio, json, sys
from uuid import UUID
from rag_app.application import create_app, open_application
from rag_app.database.urls import DatabaseUrls
from rag_app.domain.answer import Question
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.settings import Settings

async def main():
    settings, scope = Settings(), Scope(frozenset({PUBLIC_ORGANIZATION}))
    urls = DatabaseUrls(*(each.get_secret_value() for each in (settings.database.url, settings.database.owner_url)), True)
    async with open_application(settings, urls) as application:  # which builds what has not been built
        await application.pipeline.search("org_knowledge", Question("Where does it begin?"), scope)
        if "answers" in sys.argv:
            answer = await application.pipeline.answer("knowledge_answer", Question("Where does it begin?"), scope)
            assert answer.text
    app = create_app()
    async with app.lifespan():
        assert app.routes

asyncio.run(main())
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

COMMAND_LINE = {
    "rag_app", "typer", "msgspec", "annotated_doc", "shellingham", "typing_extensions", "sitecustomize",
    "pydantic", "pydantic_core", "annotated_types", "typing_inspection",  # which typer asks about a command's options
}  # fmt: skip
ALWAYS = {"asyncpg", "sqlalchemy", "litestar", "llama_index", "onnxruntime", "tokenizers"}
"""PostgreSQL has organizations and sources, and analyzes the texts, whichever store the vectors are in."""
VENDORS = {
    "qdrant_client", "grpc", "openai", "tiktoken", "huggingface_hub", "transformers", "torch", "fastembed", "nltk", "psycopg",
    "psycopg2", "llama_index.llms.openai", "llama_index.llms.openai_like", "llama_index.llms.huggingface_api",
    "llama_index.embeddings.openai", "llama_index.vector_stores.postgres", "llama_index.vector_stores.qdrant",
}  # fmt: skip
"""Packages that something installed brings, and that are loaded where they are asked for."""


def loaded(code: str, *arguments: str, variables: Mapping[str, str] | None = None) -> set[str]:
    """The modules of a new process after it has run this."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAG_", "QDRANT_", "OPENAI_"))}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env={**kept, "RAG_LOG_LEVEL": "error", **(variables or {})},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def of(modules: set[str], packages: set[str]) -> set[str]:
    """Those of the packages that are loaded."""
    return {each for each in packages if any(name == each or name.startswith(f"{each}.") for name in modules)}


@pytest.mark.parametrize("arguments", [["--help"], ["indexes", "move", "--help"]])
def test_help_loads_the_command_line_alone(arguments: list[str]) -> None:
    modules = loaded(HELP, *arguments)
    ours = {".".join(name.split(".")[:2]) for name in modules if name.partition(".")[0] == "rag_app"}
    assert ours == {"rag_app", "rag_app.console", "rag_app.domain", "rag_app.stores"}
    others = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert {name for name in others if not name.startswith("_")} <= COMMAND_LINE, arguments


@pytest.fixture
def configured(environment: str) -> dict[str, str]:
    """The variables of a deployment, for another process."""
    names = (
        "RAG_DATABASE_URL",
        "RAG_DATABASE_OWNER_URL",
        "RAG_VECTOR_STORE",
        "RAG_JWT_SECRET",
        "RAG_HOME",
        "QDRANT_PATH",
    )
    return {name: os.environ[name] for name in names}


def test_a_server_loads_what_is_configured_and_no_other_vendor(configured: dict[str, str], environment: str) -> None:
    modules = loaded(SERVED, "answers", variables=configured)
    assert of(modules, ALWAYS) == ALWAYS
    found = of(modules, VENDORS)
    assert found - {"grpc"} == ({"qdrant_client"} if environment == "qdrant" else set()), found
    assert "grpc" not in found or environment == "qdrant"
    assert of(modules, {"pgvector"}) == ({"pgvector"} if environment == "postgres" else set())


@pytest.mark.parametrize("environment", ["postgres"], indirect=True)
def test_a_vendor_is_loaded_when_it_is_configured(configured: dict[str, str]) -> None:
    """Otherwise the test above would pass with wrong names in its list."""
    model = {
        "RAG_LLM": "openai_like", "RAG_LLM_API_BASE": "http://127.0.0.1:9/v1", "RAG_LLM_MODEL": "m", "RAG_LLM_API_KEY": "k"
    }  # fmt: skip
    found = of(loaded(SERVED, variables={**configured, **model}), VENDORS)
    assert {"openai", "llama_index.llms.openai", "llama_index.llms.openai_like"} <= found
    assert not found & {"qdrant_client", "huggingface_hub", "llama_index.llms.huggingface_api", "torch", "fastembed"}
