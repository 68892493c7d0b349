"""The same API with people and limits in PostgreSQL."""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from uuid import uuid4

import httpx
from litestar import Litestar

from rag_app.access.limits import Leases, RateLimiter
from rag_app.access.people import Keys, People
from rag_app.access.tokens import TokenReader, issue_token
from rag_app.database.session import Database
from rag_app.domain.scope import PUBLIC_ORGANIZATION
from rag_app.http.entrance import Access, Entrance
from rag_app.http.server import api
from rag_app.surfaces.registry import SURFACES
from tests.conftest import NewOrganization
from tests.contract.conftest import SECRET, Backstage, ScriptedPipeline, serve
from tests.contract.test_errors import ASK, problem
from tests.waiting import PATIENCE


@contextmanager
def serving(database_url: str, pipeline: ScriptedPipeline) -> Iterator[httpx.Client]:
    database = Database(database_url)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        yield
        await database.close()

    backstage = Backstage(pipeline=pipeline)
    access = Access(People(database), Keys(database), RateLimiter(database), Leases(database))
    app = api(
        backstage.services(), access, Entrance(TokenReader(SECRET)), SURFACES, version="0.0.test", lifespan=[lifespan]
    )
    with serve(app) as url, httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client:
        yield client


def bearer(subject: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {issue_token(subject, SECRET)}"}


async def test_the_scope_is_what_the_database_says(
    database_urls: tuple[str, str], database: Database, organization: NewOrganization
) -> None:
    people, org = People(database), await organization()
    member = await people.create_user(f"ada-{uuid4().hex}")
    await people.add_member(org, member)
    pipeline = ScriptedPipeline()

    with serving(database_urls[1], pipeline) as client:
        for subject in (str(member.id), str(uuid4()), "auth0|not-one-of-ours"):
            assert client.post("/api/rag/search", json=ASK, headers=bearer(subject)).status_code == 200

    known, unknown, foreign = (scope for _, _, scope in pipeline.asked)
    assert known.user == member.id and known.organizations == {org.id, PUBLIC_ORGANIZATION}
    for scope in (unknown, foreign):
        assert scope.user is None and scope.organizations == {PUBLIC_ORGANIZATION}


def test_two_servers_count_one_window(database_urls: tuple[str, str]) -> None:
    somebody = bearer(str(uuid4()))
    with serving(database_urls[1], ScriptedPipeline()) as one, serving(database_urls[1], ScriptedPipeline()) as other:
        responses = [
            client.post(path, json=ASK, headers=somebody)
            for _ in range(40)
            for client, path in ((one, "/api/rag/search"), (other, "/functions/v1/rag-search"))
        ]
    reset = int(responses[0].headers["x-ratelimit-reset"])
    in_time = [each for each in responses if int(each.headers["x-ratelimit-reset"]) == reset]  # of the first place
    counted = [int(each.headers["x-ratelimit-remaining"]) for each in in_time]
    assert counted == [max(0, 59 - number) for number in range(len(counted))]
    assert [each.status_code for each in in_time] == [200 if n < 60 else 429 for n in range(len(counted))]


def test_no_database(database_urls: tuple[str, str]) -> None:
    with socket.socket() as nobody:  # bound, but not listening
        nobody.bind(("127.0.0.1", 0))
        url = f"postgresql://rag_app:secret@127.0.0.1:{nobody.getsockname()[1]}/rag"
        with serving(url, ScriptedPipeline()) as client:
            response = client.post("/api/rag/search", json=ASK, headers=bearer(str(uuid4())))
            problem(response, 500, "database_error")
            assert "127.0.0.1" not in response.text
            assert client.get("/health/live").status_code == 200
