"""What a caller may show: each kind of credential, on surfaces that take it and on those that do not."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from litestar import Request, get, post
from litestar.openapi.spec import Tag

from rag_app.access.tokens import TokenReader, issue_token
from rag_app.domain.errors import Misconfigured
from rag_app.domain.scope import Principal
from rag_app.http.entrance import Entrance, hosts, origin_of, origins
from rag_app.http.server import api
from rag_app.http.surface import Credential, Surface, security
from rag_app.surfaces import registry
from tests.contract.conftest import AUDIENCE, ISSUER, SECRET, Backstage, serve
from tests.contract.test_errors import problem
from tests.waiting import PATIENCE

JWT, COOKIE, EXTENSION, SESSION, API_KEY, NONE = Credential
APP, OTHER = "https://app.example", "https://evil.example"
KEY, ODD_KEY = ("rag_" + letter * 43 for letter in "ko")
SERVICE, SERVICE_USER = f"key:{uuid4()}", uuid4()
TAKES = {
    "person": {JWT},
    "browser": {JWT, COOKIE},
    "extension": {EXTENSION},
    "market": {JWT, COOKIE, EXTENSION, API_KEY},
    "keys": {API_KEY},
    "shop": {JWT, SESSION, NONE},
}


def surface(name: str, takes: set[Credential]) -> Surface:
    """Says who was let in."""
    described = {"security": security(takes), "tags": [name]}

    @get(f"/{name}", **described)  # type: ignore[arg-type]
    async def read(request: Request[Principal, Any, Any]) -> dict[str, str]:
        return {"subject": request.user.subject}

    @post(f"/{name}", status_code=200, **described)  # type: ignore[arg-type]
    async def write(request: Request[Principal, Any, Any]) -> dict[str, str]:
        return {"subject": request.user.subject}

    return Surface(name, Tag(name), (f"/{name}",), 1000, credentials=frozenset(takes), handlers=[read, write])


SURFACES = [surface(name, takes) for name, takes in TAKES.items()]


def token(client: str | None = None, **changes: Any) -> str:
    return issue_token(
        **{"user_id": "ada", "secret": SECRET, "audience": AUDIENCE, "issuer": ISSUER, **changes}, client=client
    )


def bearer(value: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {value}"}


def session(value: str, origin: str | None = APP) -> dict[str, str]:
    return {"Cookie": f"a=b; rag_session={value}"} | ({"Origin": origin} if origin is not None else {})


@pytest.fixture(scope="module")
def backstage() -> Backstage:
    backstage = Backstage()
    backstage.keys.known = {KEY: Principal(SERVICE, SERVICE_USER), ODD_KEY: Principal("odd")}
    backstage.people.known = {"rose": Principal("member of rose")}
    return backstage


@pytest.fixture(scope="module")
def client(backstage: Backstage) -> Iterator[httpx.Client]:
    entrance = Entrance(TokenReader(SECRET, AUDIENCE, ISSUER), "rag_session", frozenset({APP}), "rose")
    app = api(backstage.services(), backstage.access(), entrance, version="0.0.test", surfaces=SURFACES)
    with serve(app) as url, httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client:
        yield client


@pytest.fixture(scope="module")
def bare(backstage: Backstage) -> Iterator[httpx.Client]:
    """The same surfaces where no origin and no default organization are configured."""
    entrance = Entrance(TokenReader(SECRET, AUDIENCE, ISSUER))
    app = api(backstage.services(), backstage.access(), entrance, version="0.0.test", surfaces=SURFACES)
    with serve(app) as url, httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client:
        yield client


def refusal(response: httpx.Response) -> str:
    message: str = problem(response, 401, "unauthenticated")["message"]
    assert response.headers["www-authenticate"] == "Bearer"
    return message


SHOWN: dict[str, tuple[dict[str, str], str, set[str]]] = {
    "a person's token": (bearer(token()), "ada", {"person", "browser", "market", "shop"}),
    "a person's token, and x-ext-client": (
        bearer(token()) | {"x-ext-client": "chrome/1.2"},
        "ada",
        {"person", "browser", "market", "shop"},
    ),
    "the token of a client of another kind": (bearer(token("web")), "ada", {"person", "browser", "market", "shop"}),
    "a token and somebody else's cookie": (
        bearer(token()) | session(token(user_id="grace")),
        "ada",
        {"person", "browser", "market", "shop"},
    ),
    "an extension's token": (
        bearer(token("extension")) | {"x-ext-client": "chrome/1.2"},
        "ada",
        {"extension", "market"},
    ),
    "a key as bearer": (bearer(KEY), SERVICE, {"market", "keys"}),
    "a key in its header": ({"X-API-Key": KEY}, SERVICE, {"market", "keys"}),
    "a key and the cookie that the browser adds": (
        {"x-api-key": KEY} | session(token()),
        SERVICE,
        {"market", "keys"},
    ),
    "nothing": ({}, "member of rose", {"shop"}),
    "another cookie": ({"Cookie": "other=1"}, "member of rose", {"shop"}),
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize("shown", SHOWN)
def test_a_surface_takes_what_it_says_and_nothing_else(
    shown: str, name: str, method: str, client: httpx.Client
) -> None:
    headers, who, on = SHOWN[shown]
    response = client.request(method, f"/{name}", headers=headers)
    if name in on:
        assert (response.status_code, response.json()) == (200, {"subject": who})
    else:
        assert refusal(response) == ("API keys are not accepted here. " if "key" in shown else "") + MESSAGES[name]


MESSAGES = {
    "person": "Send a token: `Authorization: Bearer <JWT>`",
    "browser": "Send a token: `Authorization: Bearer <JWT>`, or the session cookie `rag_session`",
    "extension": "Send a token of the extension, with the header `x-ext-client`",
    "market": "Send a token: `Authorization: Bearer <JWT>`, or the session cookie `rag_session`, or a token of the"
    " extension, with the header `x-ext-client`, or an API key: `Authorization: Bearer rag_...` or `x-api-key`",
    "keys": "Send an API key: `Authorization: Bearer rag_...` or `x-api-key`",
    "shop": "Send a token: `Authorization: Bearer <JWT>`, or no credential at all",
}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic YWRhOmFkYQ=="},
        {"Authorization": KEY},
        {"x-api-key": ""},
        {"x-api-key": token()},
        {"x-api-key": "rag_made-up"},
        bearer("rag_made-up"),
        bearer("rag_"),
        bearer("nonsense"),
        bearer(token(secret="another secret of more than 32 bytes")),
        bearer(token(audience="somebody else")),
        bearer(token("extension")),
        bearer(token("extension")) | {"x-ext-client": ""},
        bearer("nonsense") | session(token()),
        {"Authorization": ""} | session(token()),
    ],
)
def test_what_does_not_hold_is_refused_everywhere_and_not_replaced(
    headers: dict[str, str], client: httpx.Client
) -> None:
    for name in TAKES:
        refusal(client.post(f"/{name}", headers=headers))


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("headers", "who"),
    [
        (session(token()), "ada"),
        (session(token(), OTHER), None),
        (session(""), None),
        (session("nonsense"), None),
        (session(KEY), None),
        (session(token("extension")) | {"x-ext-client": "chrome/1.2"}, None),
    ],
)
def test_the_cookie_is_judged_where_one_is_taken_and_not_looked_at_elsewhere(
    headers: dict[str, str], who: str | None, method: str, client: httpx.Client
) -> None:
    for name, takes in TAKES.items():
        response = client.request(method, f"/{name}", headers=headers)
        foreign = OTHER in headers.values()  # another page: without a credential it reads nothing
        let_in = who if COOKIE in takes else "member of rose" if NONE in takes and not foreign else None
        if let_in:
            assert (response.status_code, response.json()) == (200, {"subject": let_in})
        elif COOKIE in takes or NONE in takes:
            refusal(response)
        else:
            assert refusal(response) == MESSAGES[name]


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", f"Bearer {token()}"), ("x-api-key", KEY)],
        [("Authorization", f"Bearer {KEY}"), ("x-api-key", KEY)],
        [("Authorization", f"Bearer {token()}"), ("Authorization", f"Bearer {token(user_id='grace')}")],
        [("x-api-key", KEY), ("x-api-key", ODD_KEY)],
        [("Authorization", ""), ("x-api-key", KEY)],
    ],
)
def test_of_two_credentials_none_is_chosen(headers: list[tuple[str, str]], client: httpx.Client) -> None:
    for name in TAKES:
        message = refusal(client.post(f"/{name}", headers=headers))
        assert message == "Send exactly one credential: either `Authorization` or `x-api-key`"


def test_a_refusal_says_what_is_wrong_with_the_credential(client: httpx.Client) -> None:
    assert refusal(client.get("/market", headers=bearer(token("extension")))) == (
        "A token of the browser extension requires the header `x-ext-client`"
    )
    assert refusal(client.get("/market", headers=session(token(), OTHER))) == (
        "The cookie `rag_session` is not accepted from this origin"
    )
    assert refusal(client.get("/market", headers=bearer("rag_made-up"))) == "The API key is not valid"
    assert refusal(client.get("/market", headers=session("a.b.c"))) == "The token is not valid"
    expired = token(lifetime=timedelta(minutes=-1))
    assert refusal(client.get("/market", headers=session(expired))) == "The token has expired"
    assert (
        refusal(client.get("/market", headers=session(token("extension"))))
        == "A token of the browser extension cannot be used as a session cookie"
    )


def test_each_kind_is_counted_as_the_one_it_stands_for(client: httpx.Client, backstage: Backstage) -> None:
    backstage.limiter.counts.clear()
    for headers in (bearer(token()), session(token()), {"x-api-key": KEY}):
        client.get("/market", headers=headers)
    client.get("/shop")
    client.get("/shop", headers=bearer("nonsense"))
    assert backstage.limiter.counts == {"market:ada": 2, f"market:{SERVICE_USER}": 1, "shop:member of rose": 1}


# --- the cookie, and pages that somebody else wrote

FORGED: list[dict[str, str]] = [
    {},
    {"Origin": OTHER},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://app.example"},
    {"Origin": "https://app.example:8443"},
    {"Origin": "https://app.example.evil.example"},
    {"Origin": "https://sub.app.example"},
    {"Origin": "https://evil.example#https://app.example"},
    {"Origin": OTHER, "Referer": f"{APP}/page"},
    {"Origin": "null", "Referer": f"{APP}/page"},
    {"Referer": f"{OTHER}/page"},
    {"Referer": f"{OTHER}/{APP}/page"},
    {"Referer": "https://app.example@evil.example/"},
    {"Referer": "https://app.example.evil.example/"},
    {"Referer": "https://[app.example/"},
    {"Referer": ""},
    {"Host": "app.example"},
]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("headers", FORGED, ids=str)
def test_a_cookie_from_elsewhere_is_not_accepted(headers: dict[str, str], method: str, client: httpx.Client) -> None:
    for name in ("browser", "market"):
        response = client.request(method, f"/{name}", headers=session(token(), None) | headers)
        assert refusal(response) == "The cookie `rag_session` is not accepted from this origin"


@pytest.mark.parametrize(
    "headers",
    [{"Origin": APP}, {"Origin": APP, "Referer": f"{OTHER}/"}, {"Referer": f"{APP}/page?query#x"}, {"Referer": APP}],
)
def test_a_cookie_from_a_configured_origin_is(headers: dict[str, str], client: httpx.Client) -> None:
    response = client.post("/browser", headers=session(token(), None) | headers)
    assert (response.status_code, response.json()) == (200, {"subject": "ada"})


def test_other_credentials_are_accepted_from_anywhere(client: httpx.Client) -> None:
    for origin in (APP, OTHER, "null"):
        for headers in (bearer(token()), bearer(KEY), bearer(token("extension")) | {"x-ext-client": "x"}):
            assert client.post("/market", headers=headers | {"Origin": origin}).status_code == 200


def test_the_cookie_has_the_name_that_is_configured(backstage: Backstage) -> None:
    entrance = Entrance(TokenReader(SECRET, AUDIENCE, ISSUER), "sid", frozenset({APP}))
    app = api(backstage.services(), backstage.access(), entrance, version="0.0.test", surfaces=SURFACES)
    with serve(app) as url, httpx.Client(base_url=url, verify=False, headers={"Origin": APP}) as client:
        assert client.get("/browser", headers={"Cookie": f"sid={token()}"}).status_code == 200
        assert "`sid`" in refusal(client.get("/browser", headers={"Cookie": f"rag_session={token()}"}))
        assert client.get("/openapi.json").json()["components"]["securitySchemes"]["cookie"]["name"] == "sid"


# --- a deployment that has configured neither


def test_without_origins_no_cookie_is_accepted(bare: httpx.Client) -> None:
    for origin in (APP, None, "null", ""):
        message = refusal(bare.post("/browser", headers=session(token(), origin)))
        assert message == "Send a token: `Authorization: Bearer <JWT>`"


def test_without_a_default_organization_nobody_enters_without_a_credential(bare: httpx.Client) -> None:
    assert refusal(bare.get("/shop")) == "Send a token: `Authorization: Bearer <JWT>`"


def test_a_surface_that_nothing_is_configured_for_says_so(backstage: Backstage) -> None:
    entrance = Entrance(TokenReader(SECRET, AUDIENCE, ISSUER))
    app = api(
        backstage.services(),
        backstage.access(),
        entrance,
        version="0.0.test",
        surfaces=[surface("closed", {COOKIE, NONE})],
    )
    with serve(app) as url:
        for headers in ({}, session(token()), bearer(token())):
            assert "No way of signing in is configured" in refusal(httpx.get(f"{url}/closed", headers=headers))


def test_a_default_organization_that_is_gone_is_a_fault_of_the_server(backstage: Backstage) -> None:
    entrance = Entrance(TokenReader(SECRET, AUDIENCE, ISSUER), default_organization="gone")
    app = api(backstage.services(), backstage.access(), entrance, version="0.0.test", surfaces=SURFACES)
    with serve(app) as url, httpx.Client(base_url=url, verify=False) as client:
        assert "gone" not in problem(client.get("/shop"), 500, "internal_error")["message"]
        assert client.get("/shop", headers=bearer(token())).status_code == 200


# --- CORS


def preflight(
    client: httpx.Client, origin: str, method: str = "POST", headers: str = "authorization"
) -> httpx.Response:
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
    return client.options("/market", headers={"Origin": origin, **asked})


def allowed(response: httpx.Response) -> tuple[str | None, str | None]:
    return (
        response.headers.get("access-control-allow-origin"),
        response.headers.get("access-control-allow-credentials"),
    )


def test_configured_origins_may_send_credentials_and_others_may_not(client: httpx.Client) -> None:
    for response in (
        preflight(client, APP),
        client.post("/market", headers=session(token())),
        client.post("/market", headers=session("nonsense")),
        client.get("/nothing", headers={"Origin": APP}),
        client.get("/health/live", headers={"Origin": APP}),
    ):
        assert allowed(response) == (APP, "true")
        assert response.headers["vary"] == "Origin"
    for origin in (OTHER, "null", "https://app.example.evil.example", "http://app.example", "*"):
        for response in (
            preflight(client, origin),
            client.post("/market", headers=bearer(token()) | {"Origin": origin}),
            client.get("/nothing", headers={"Origin": origin}),
        ):
            assert allowed(response) == ("*", None)
            assert response.headers["vary"] == "Origin", "a cache must not hand this to the configured origin"
    assert allowed(client.post("/market", headers=session(token(), OTHER)))[1] is None
    assert allowed(client.get("/health/live")) == (None, None)


def test_without_origins_nobody_may_send_credentials(bare: httpx.Client) -> None:
    for response in (preflight(bare, APP), bare.post("/market", headers=bearer(token()) | {"Origin": APP})):
        assert allowed(response) == ("*", None)
    assert allowed(bare.post("/market", headers=session(token())))[1] is None


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("origin", [APP, OTHER])
def test_preflights(method: str, origin: str, client: httpx.Client) -> None:
    wanted = (
        "authorization, x-api-key, x-ext-client, content-type, x-request-id, apikey, x-client-info, prefer, last-event-id,"
        " idempotency-key"
    )
    response = preflight(client, origin, method, wanted)
    assert response.status_code == 204
    assert set(response.headers["access-control-allow-methods"].split(", ")) == {
        "GET",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "OPTIONS",
    }
    assert set(wanted.split(", ")) <= set(response.headers["access-control-allow-headers"].lower().split(", "))


def test_a_preflight_for_something_else_fails(client: httpx.Client) -> None:
    assert preflight(client, APP, "TRACE").status_code == 400
    assert preflight(client, APP, headers="x-forwarded-for").status_code == 400


# --- what the document says


def test_the_document_tells_what_each_surface_takes(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    any_scope: list[str] = []
    bearer_, cookie = {"bearer": any_scope}, {"cookie": any_scope}
    extension = {"bearer": any_scope, "extension": any_scope}
    key = [{"api_key": any_scope}, {"api_key_as_bearer": any_scope}]
    assert {
        path[1:]: operations["post"].get("security")
        for path, operations in document["paths"].items()
        if "post" in operations
    } == {
        "person": [bearer_],
        "browser": [bearer_, cookie],
        "extension": [extension],
        "market": [bearer_, cookie, extension, *key],
        "keys": key,
        "shop": [bearer_, {}],
    }
    schemes = document["components"]["securitySchemes"]
    assert {name: (scheme["type"], scheme.get("in"), scheme.get("name")) for name, scheme in schemes.items()} == {
        "bearer": ("http", None, None),
        "cookie": ("apiKey", "cookie", "rag_session"),
        "extension": ("apiKey", "header", "x-ext-client"),
        "api_key": ("apiKey", "header", "x-api-key"),
        "api_key_as_bearer": ("http", None, None),
    }


# --- origins as they are written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", set()),
        (" , ", set()),
        ("https://app.example", {"https://app.example"}),
        ("HTTPS://App.Example:443,http://app.example:80", {"https://app.example", "http://app.example"}),
        (" http://localhost:3000 ,https://[::1]:8443", {"http://localhost:3000", "https://[::1]:8443"}),
    ],
)
def test_origins(text: str, expected: set[str]) -> None:
    assert origins(text) == expected


@pytest.mark.parametrize(
    "bad",
    [
        "app.example",
        "*",
        "null",
        "https://*.app.example",
        "https://app.example/",
        "https://app.example/path",
        "https://app.example?query",
        "https://app.example#part",
        "https://user@app.example",
        "https://app.example:port",
        "https://app.example:99999",
        "https://app example",
        "https://bücher.example",
        "https://",
        "ftp://app.example",
        "chrome-extension://abc",
        "https://app.example;https://b.example",
    ],
)
def test_what_is_no_origin_is_named(bad: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        origins(f"https://good.example, {bad}")
    assert (
        str(refused.value) == f"RAG_ORIGINS: {bad!r} is not an origin: write it as https://app.example, without a path"
    )


@pytest.mark.parametrize(
    "url", ["", "about:blank", "data:text/html,x", "https://", "//app.example", "https://[x", "https://a:b"]
)
def test_a_page_without_an_origin(url: str) -> None:
    assert origin_of(url) is None


def test_pages_of_other_origins_do_not_read_the_default_organization() -> None:
    """Whoever opens one inside of the network would be its messenger."""
    backstage = Backstage()
    backstage.people.known["acme"] = Principal("member of acme", None, frozenset({uuid4()}))
    entrance = Entrance(TokenReader(SECRET), origins=frozenset({"https://app.example"}), default_organization="acme")
    app = api(backstage.services(), backstage.access(), entrance, registry.SURFACES, version="0.0.test")
    with serve(app) as url, httpx.Client(base_url=url, verify=False) as client:

        def status(**headers: str) -> int:
            return client.post("/owner/search", json={"query": "?"}, headers=headers).status_code

        assert [status(), status(Origin=url), status(Origin="https://app.example")] == [200, 200, 200]
        assert [status(Origin="https://evil.example"), status(Origin="null"), status(Origin="")] == [401, 401, 401]


def test_without_a_credential_a_name_that_was_made_to_point_here_reads_nothing() -> None:
    """DNS rebinding: the page's own origin is the host that it asks."""
    backstage = Backstage()
    backstage.people.known["acme"] = Principal("member of acme", None, frozenset({uuid4()}))
    entrance = Entrance(TokenReader(SECRET), default_organization="acme", hosts=hosts("salon.example, 192.168.1.5"))
    app = api(backstage.services(), backstage.access(), entrance, registry.SURFACES, version="0.0.test")
    with serve(app) as url, httpx.Client(base_url=url, verify=False) as client:

        def status(host: str, **headers: str) -> int:
            asked = {"Host": host, "Origin": f"http://{host}", **headers}
            return client.post("/owner/search", json={"query": "?"}, headers=asked).status_code

        own = ["localhost", "127.0.0.1:8000", "[::1]:8000", "Salon.example", "salon.example:443", "192.168.1.5:8000"]
        assert [status(each) for each in own] == [200] * len(own)
        foreign = [
            "evil.example",
            "evil.example:8000",
            "localhost.evil.example",
            "salon.example.evil.example",
            "192.168.1.6",
        ]
        assert [status(each) for each in foreign] == [401] * len(foreign)
        assert status("evil.example", **bearer(issue_token("ada", SECRET))) == 200  # who shows one is asked for no host


def test_without_a_credential_the_demo_answers_this_machine_alone() -> None:
    """A page whose name was made to point here (DNS rebinding) has the origin that it asks."""
    backstage = Backstage()
    backstage.people.known["acme"] = Principal("member of acme", None, frozenset({uuid4()}))
    entrance = Entrance(TokenReader(SECRET), default_organization="acme", near=True)
    app = api(backstage.services(), backstage.access(), entrance, registry.SURFACES, version="0.0.test")
    with serve(app) as url, httpx.Client(base_url=url, verify=False) as client:

        def status(**headers: str) -> int:
            return client.post("/owner/search", json={"query": "?"}, headers=headers).status_code

        assert [status(), status(Host="localhost"), status(Origin=url)] == [200, 200, 200]
        rebound = {"Host": "evil.example:8000", "Origin": url.partition(":")[0] + "://evil.example:8000"}
        assert [status(**rebound), status(**{"X-Forwarded-For": "10.0.0.1"})] == [401, 401]
