"""The playground over HTTP with everything real: each step of a question, two configurations, judgments."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from rag_app.application import Application
from rag_app.domain.scope import Principal
from tests.conftest import NewPostgres
from tests.integration.service import Text, bearer, configured, ingest, prepare, served, without_limits

PLAYGROUND = "/api/v1/playground"
QUESTION = "When does the gardener bring the blue wheelbarrow?"


@dataclass(frozen=True)
class Garden:
    client: httpx.Client
    slug: str
    org: UUID
    admin: UUID
    ann: UUID
    tools: Text
    theirs: Text

    def post(self, path: str, body: object, user: UUID | None = None) -> httpx.Response:
        return self.client.post(f"{PLAYGROUND}{path}", json=body, headers=bearer(user or self.admin))

    def ask(self, *configurations: dict[str, Any], question: str = QUESTION) -> list[dict[str, Any]]:
        response = self.post("", {"question": question, "configurations": [*configurations]})
        assert response.status_code == 200, response.text
        results: list[dict[str, Any]] = response.json()["results"]
        return results


@pytest.fixture(scope="module")
def garden(new_database: NewPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garden]:
    server, folder = new_database(), tmp_path_factory.mktemp("garden")

    async def build(application: Application) -> tuple[str, list[UUID], list[Text]]:
        people = application.people
        own, other = [await people.create_organization(f"{each}-{uuid4().hex[:8]}", each) for each in ("own", "other")]
        admin, ann = await people.create_user("root", role="admin"), await people.create_user("ann")
        for user in (admin, ann):
            await people.add_member(own, user)
        texts = [
            Text(
                "tools", "The gardener brings the blue wheelbarrow every Monday at nine.", own.id, None, {"lang": "en"}
            ),
            Text("plants", "Tomatoes get water each evening.", own.id, None, {"lang": "fr"}),
            Text("theirs", "The gardener brings the red wheelbarrow every Friday, zqforeign.", other.id),
        ]
        await ingest(application, folder, texts)
        return own.slug, [own.id, admin.id, ann.id], texts

    variables = {
        "RAG_DATABASE_URL": server.app_url,
        "RAG_DATABASE_OWNER_URL": server.owner_url,
        "RAG_VECTOR_STORE": "postgres",
        "RAG_HOME": str(folder),
    }
    with configured(variables) as patch:
        without_limits(patch)
        slug, (org, admin, ann), (tools, _, theirs) = prepare(build)
        with served() as client:
            yield Garden(client, slug, org, admin, ann, tools, theirs)


def test_every_step_is_told(garden: Garden) -> None:
    [result] = garden.ask({"index": "org_knowledge", "top_k": 2})
    first, second = result["hits"]
    assert first["source_id"] == str(garden.tools.id) and (first["rank"], second["rank"]) == (1, 2)
    assert (first["cosine_rank"], first["words_rank"]) == (1, 1) and first["cosine"] > second["cosine"]
    assert first["bm25"] > 0 and result["candidates"] == 2 and first["kept"]
    assert "wheelbarrow" in result["answer"]["text"] and result["answer"]["refusal"] is None
    assert result["answer"]["citations"][0]["source_id"] == str(garden.tools.id)
    assert result["gate"]["answers"] and "best" in result["gate"]["signals"]
    chosen = [each for each in result["sentences"] if each["chosen"]]
    assert chosen[0]["source"] == 1 and chosen[0]["words"] > 0.5 and chosen[0]["score"] >= chosen[-1]["score"]
    assert result["prompt"]["version"] == "knowledge_answer_v1"
    told = "\n".join(each["content"] for each in result["prompt"]["messages"])
    assert QUESTION in told and "[Source 1]" in told and "blue wheelbarrow" in told
    assert {"embedding", "search", "of it retrieval", "of it generation"} <= {
        each["stage"] for each in result["stages"]
    }
    assert "zqforeign" not in str(result)


def test_two_configurations_differ_where_they_should(garden: Garden) -> None:
    words, narrow = garden.ask(
        {"index": "org_knowledge", "mode": "text", "answer": False},
        {
            "index": "org_knowledge",
            "mode": "dense",
            "filters": ["lang=fr"],
            "threshold": 0.99,
            "organization": garden.slug,
        },
    )
    assert [each["source_id"] for each in words["hits"]] == [str(garden.tools.id)] and words["answer"] is None
    assert [each["kept"] for each in narrow["hits"]] == [False]
    assert narrow["answer"]["refusal"] == "nothing_found" and not narrow["gate"]["answers"]
    assert narrow["prompt"] is None and narrow["sentences"] == []
    [nothing] = garden.ask({"index": "marketplace"})
    assert nothing["hits"] == [] and nothing["answer"]["refusal"] == "nothing_found"


def test_what_cannot_be_asked_is_refused(garden: Garden) -> None:
    refused: list[tuple[dict[str, Any], int]] = [
        ({"index": "boook"}, 404),
        ({"organization": "other"}, 404),
        ({"filters": ["colour=red"]}, 400),
        ({"top_k": 51}, 400),
        ({"colour": 1}, 400),
    ]
    for configuration, status in refused:
        assert garden.post("", {"question": QUESTION, "configurations": [configuration]}).status_code == status
    assert garden.post("", {"question": QUESTION, "configurations": []}).status_code == 400
    assert garden.post("", {"question": QUESTION, "configurations": [{}]}, garden.ann).status_code == 403
    assert garden.client.get(PLAYGROUND, headers=bearer(garden.ann)).status_code == 403
    options = garden.client.get(PLAYGROUND, headers=bearer(garden.admin)).json()
    assert options["organizations"] == [garden.slug]
    assert {each["name"]: each["capability"] for each in options["indexes"]}["org_knowledge"] == "knowledge_answer"


def test_right_and_wrong_become_judgments(garden: Garden) -> None:
    async def judged(application: Application) -> dict[str, dict[str, int]]:
        return await application.validations.recorded_judgments(
            Principal("root", garden.admin, frozenset({garden.org})), "org_knowledge"
        )

    [result] = garden.ask({"index": "org_knowledge", "answer": False})
    body = {"question": QUESTION, "index": "org_knowledge", "chunk_id": result["hits"][0]["chunk_id"]}
    kept = garden.post("/judgments", {**body, "relevant": True})
    assert kept.status_code == 200 and kept.json()["start"] == 0
    assert prepare(judged) == {QUESTION.casefold(): {"tools": 1}}
    assert garden.post("/judgments", {**body, "relevant": False}).status_code == 200
    assert prepare(judged) == {}, "the same passage is judged anew"
    assert garden.post("/judgments", {**body, "relevant": True}, garden.ann).status_code == 403
    assert garden.post("/judgments", {**body, "chunk_id": str(uuid4()), "relevant": True}).status_code == 404
