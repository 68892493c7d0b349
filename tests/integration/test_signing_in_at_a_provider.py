"""Signing in at an identity provider, over real sockets: what works, and what an attacker may try."""

import base64
import hmac
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit
from uuid import UUID, uuid4

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from rag_app.access import openid
from rag_app.access.openid import Attempt
from rag_app.access.page_sessions import Sessions, digest
from rag_app.access.people import People
from rag_app.access.roles import GroupDirectory
from rag_app.application import Application, identity_provider
from rag_app.database.session import Database
from rag_app.domain.errors import Misconfigured, RagError
from rag_app.settings import Settings
from tests.contract.test_identity_provider import pem
from tests.integration.service import configured, prepare, served
from tests.integration.test_api_end_to_end import variables
from tests.integration.test_pages import OWN, USAGE, Pages
from tests.scripted_provider import AUTHORIZE, DISCOVERY, KEYS, TOKEN, Claims, ScriptedProvider

SECRET = "s3cret/of the client"
COOKIE, SESSION = "rag_signing_in", "rag_pages"


@dataclass
class Place:
    """A server that shows pages, the provider it trusts, and a user of both."""

    pages: Pages
    provider: ScriptedProvider
    user: UUID

    def leave(self, browser: httpx.Client, after: str = "/") -> dict[str, str]:
        """Set out for the provider; gives what it is asked."""
        sent = browser.get("/sign-in/provider", params={"next": after})
        assert sent.status_code == 303, sent.text
        assert sent.headers["location"].startswith(f"{self.provider.issuer}{AUTHORIZE}?")
        return dict(parse_qsl(urlsplit(sent.headers["location"]).query))

    def come_back(self, browser: httpx.Client, **said: str) -> httpx.Response:
        return browser.get("/sign-in/callback", params=said)

    def sign_in(self, browser: httpx.Client, after: str = "/") -> httpx.Response:
        asked = self.leave(browser, after)
        return self.come_back(browser, code=self.provider.code(**asked), state=asked["state"])


@pytest.fixture(scope="module")
def _place(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("provider")
    with ScriptedProvider(client_secret="s3cret%2Fof%20the%20client") as provider:
        oidc = {
            "RAG_OIDC_ISSUER": provider.issuer,
            "RAG_OIDC_CLIENT_ID": "rag",
            "RAG_OIDC_CLIENT_SECRET": SECRET,
        }
        with configured({**variables(database_urls, default_store, folder, qdrant_folder), **oidc}):
            prepare(Application.build_missing)
            with served() as client:
                pages = Pages(client, database_urls[1])
                user, _ = pages.newcomer()
                yield Place(pages, provider, user.id)


@pytest.fixture
def place(_place: Place) -> Place:
    _place.provider.behave()
    _place.provider.subject = str(_place.user)
    return _place


@pytest.fixture
def browser(place: Place) -> Iterator[httpx.Client]:
    with place.pages.browser() as browser:
        yield browser


def refused(response: httpx.Response, status: int, says: str) -> None:
    """A page in plain words, and no session."""
    assert response.status_code == status, response.text
    assert says in response.text, response.text
    assert not [each for each in response.headers.get_list("set-cookie") if "rag_pages" in each]
    assert 'action="/sign-in/code"' in response.text, "the other way is still offered"
    assert response.headers["referrer-policy"] == "no-referrer"


def test_a_browser_leaves_with_all_that_protects_its_way(place: Place, browser: httpx.Client) -> None:
    assert f"Sign in at {urlsplit(place.provider.issuer).netloc}" in browser.get("/sign-in").text
    sent = browser.get("/sign-in/provider")
    [cookie] = sent.headers.get_list("set-cookie")
    assert cookie.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=lax", "Path=/", "Max-Age=600"} <= {each.strip() for each in cookie.split(";")}
    assert sent.headers["referrer-policy"] == "no-referrer"
    asked = dict(parse_qsl(urlsplit(sent.headers["location"]).query))
    attempt = Attempt(browser.cookies[COOKIE])
    assert asked == {
        "response_type": "code",
        "client_id": "rag",
        "redirect_uri": f"{str(browser.base_url).rstrip('/')}/sign-in/callback",
        "scope": "openid",
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": attempt.challenge,
        "code_challenge_method": "S256",
    }
    assert not {attempt.secret, attempt.verifier} & set(asked.values())
    assert place.leave(browser)["state"] != attempt.state
    kept = {each["digest"] for each in place.pages.fetch("SELECT digest FROM sign_in_attempts")}
    assert digest(attempt.secret) in kept and not {attempt.secret, attempt.state, attempt.verifier} & kept


def test_whoever_the_provider_names_is_signed_in(place: Place, browser: httpx.Client) -> None:
    back = place.sign_in(browser, "/documents?q=1")
    assert (back.status_code, back.headers["location"]) == (303, "/documents?q=1")
    assert back.headers["referrer-policy"] == "no-referrer"
    assert COOKIE not in browser.cookies and SESSION in browser.cookies
    assert browser.get("/").status_code == 200
    [redeemed] = place.provider.asked(TOKEN)
    assert "client_secret" not in redeemed and len(redeemed["code_verifier"]) == 64


def test_signing_in_again_ends_the_session_before(place: Place, browser: httpx.Client) -> None:
    place.sign_in(browser)
    before = browser.cookies[SESSION]
    assert place.sign_in(browser).status_code == 303
    assert browser.cookies[SESSION] != before
    assert not place.pages.fetch("SELECT FROM page_sessions WHERE digest = $1", digest(before))


@pytest.mark.parametrize(
    "after", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:1", "/\nx"]
)
def test_nobody_is_sent_elsewhere(after: str, place: Place, browser: httpx.Client) -> None:
    assert place.sign_in(browser, after).headers["location"] == "/"


def test_the_claim_of_groups_counts_as_in_a_token(place: Place, browser: httpx.Client) -> None:
    async def make(database: Database) -> tuple[UUID, UUID]:
        people, groups = People(database), GroupDirectory(database)
        organization = await people.create_organization(f"o-{uuid4().hex}", "Org")
        user = await people.create_user(f"u-{uuid4().hex}", subject=f"id|{uuid4().hex}")
        await people.add_member(organization, user)
        await groups.create(organization, "board")
        return user.id, await groups.audience(organization, ["board"])

    async def principal(database: Database) -> frozenset[UUID]:
        visitor = await Sessions(database).visitor(browser.cookies[SESSION])
        assert visitor.user == user
        return (await People(database).principal(str(visitor.user), visitor.groups)).audiences

    user, audience = place.pages.work(make)
    place.provider.subject = place.pages.fetch("SELECT subject FROM users WHERE id = $1", user)[0]["subject"]
    place.provider.claims = {"groups": ["board", 1]}
    assert place.sign_in(browser).status_code == 303
    assert place.pages.work(principal) == {audience}
    place.provider.claims = {}
    assert place.sign_in(browser).status_code == 303
    assert place.pages.work(principal) == set(), "they are those of the last time"


# -- the state


def test_a_state_that_is_missing_or_made_up(place: Place, browser: httpx.Client) -> None:
    asked = place.leave(browser)
    code = place.provider.code(**asked)
    for said in ({}, {"state": ""}, {"state": "x"}, {"state": "é"}, {"state": Attempt().state}):
        refused(place.come_back(browser, code=code, **said), 403, "started in another browser")
    assert not place.provider.asked(TOKEN)
    assert place.come_back(browser, code=code, state=asked["state"]).status_code == 303, "nothing was used up"


def test_a_sign_in_of_another_browser(place: Place, browser: httpx.Client) -> None:
    """Login CSRF: an attacker has a victim's browser finish what the attacker has begun."""
    with place.pages.browser() as attacker:
        asked = place.leave(attacker)
        code = place.provider.code(**asked)
        refused(place.come_back(browser, code=code, state=asked["state"]), 403, "started in another browser")
        place.leave(browser)
        refused(place.come_back(browser, code=code, state=asked["state"]), 403, "started in another browser")
    assert not place.provider.asked(TOKEN)


def test_a_cookie_that_was_not_given_out(place: Place, browser: httpx.Client) -> None:
    for secret in ("", "made-up", "x" * 5000):
        browser.cookies.set(COOKIE, secret)
        refused(place.come_back(browser, code="x", state=Attempt(secret).state), 403, "started in another browser")
    assert not place.provider.asked(TOKEN)


def test_an_attempt_counts_once(place: Place, browser: httpx.Client) -> None:
    asked = place.leave(browser)
    secret, code = browser.cookies[COOKIE], place.provider.code(**asked)
    assert place.come_back(browser, code=code, state=asked["state"]).status_code == 303
    with place.pages.browser() as again:
        again.cookies.set(COOKIE, secret)
        for each in (code, place.provider.code(**asked)):
            refused(place.come_back(again, code=each, state=asked["state"]), 403, "started in another browser")
    assert len(place.provider.asked(TOKEN)) == 1


def test_an_attempt_that_took_too_long(place: Place, browser: httpx.Client) -> None:
    asked = place.leave(browser)
    place.pages.fetch(
        "UPDATE sign_in_attempts SET expires_at = now() - interval '1 second' WHERE digest = $1",
        digest(browser.cookies[COOKIE]),
    )
    back = place.come_back(browser, code=place.provider.code(**asked), state=asked["state"])
    refused(back, 403, "started in another browser, or it has expired")


# -- the code


def test_a_code_of_somebody_elses_sign_in(place: Place, browser: httpx.Client) -> None:
    """Code injection: the provider wants the verifier of the browser that the code was made for."""
    with place.pages.browser() as victim:
        stolen = place.provider.code(**place.leave(victim))
    asked = place.leave(browser)
    refused(place.come_back(browser, code=stolen, state=asked["state"]), 401, "it says invalid_grant")


def test_a_code_that_was_used(place: Place, browser: httpx.Client) -> None:
    asked = place.leave(browser)
    code = place.provider.code(**asked)
    place.come_back(browser, code=code, state=asked["state"])
    with place.pages.browser() as thief:
        asked = place.leave(thief)
        refused(place.come_back(thief, code=code, state=asked["state"]), 401, "it says invalid_grant")


@pytest.mark.parametrize(
    "said", [{"error": "access_denied"}, {"error": "access_denied", "error_description": "<b>Call 555</b>"}]
)
def test_the_provider_refuses(said: dict[str, str], place: Place, browser: httpx.Client) -> None:
    asked = place.leave(browser, "/documents")
    back = place.come_back(browser, state=asked["state"], **said)
    refused(back, 401, "it says access_denied")
    assert "555" not in back.text and 'name="next" value="/documents"' in back.text
    assert COOKIE not in browser.cookies and not place.provider.asked(TOKEN)
    asked = place.leave(browser)
    refused(place.come_back(browser, state=asked["state"], error="<script>"), 401, "nothing that can be understood")


def test_a_code_of_another_provider(place: Place, browser: httpx.Client) -> None:
    """Mix-up: `iss` beside the code says whose it is (RFC 9207)."""
    asked = place.leave(browser)
    back = place.come_back(browser, code=place.provider.code(**asked), state=asked["state"], iss="https://evil.example")
    refused(back, 401, "another provider")
    assert not place.provider.asked(TOKEN)
    asked = place.leave(browser)
    said = {"code": place.provider.code(**asked), "state": asked["state"], "iss": place.provider.issuer}
    assert place.come_back(browser, **said).status_code == 303


# -- the token


def forged(header: Claims, claims: Claims, secret: str | None = None) -> str:
    """A token with any header, with an HMAC or without a signature."""
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in (header, claims)]
    text = ".".join(parts)
    signature = hmac.digest(secret.encode(), text.encode(), "sha256") if secret is not None else b""
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


LIES: dict[str, Claims] = {
    "another nonce": {"nonce": Attempt().nonce},
    "no nonce": {"nonce": None},
    "a nonce that is no text": {"nonce": ["x"]},
    "another audience": {"aud": "another client"},
    "no audience": {"aud": None},
    "several audiences, and no word of who asked": {"aud": ["rag", "another client"]},
    "for another client": {"aud": ["rag", "another client"], "azp": "another client"},
    "for us, asked for by another": {"azp": "another client"},
    "another issuer": {"iss": "https://evil.example"},
    "no issuer": {"iss": None},
    "expired": {"exp": 1_700_000_000},
    "no end": {"exp": None},
    "no beginning": {"iat": None},
    "of tomorrow": {"iat": 4_102_444_800},
    "not valid yet": {"nbf": 4_102_444_800},
    "another access token": {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
    "a hash that is no text": {"at_hash": 5},
    "no subject": {"sub": None},
    "an empty subject": {"sub": " "},
    "a subject with a NUL": {"sub": "a\0"},
}


@pytest.mark.parametrize("claims", LIES.values(), ids=LIES)
def test_a_token_that_does_not_hold(claims: Claims, place: Place, browser: httpx.Client) -> None:
    place.provider.claims = claims
    refused(
        place.sign_in(browser),
        401,
        "cannot be used to sign in: The ID token" if "at_hash" in claims else "cannot be used to sign in: The token",
    )


def forgeries(provider: ScriptedProvider) -> dict[str, Callable[[Claims], str]]:
    other = ec.generate_private_key(ec.SECP256R1())
    public = json.dumps(provider.public_key())
    return {
        "not signed": lambda claims: forged({"alg": "none", "kid": "k"}, claims),
        "no algorithm": lambda claims: forged({"kid": "k"}, claims),
        "the public key as a secret": lambda claims: forged({"alg": "HS256", "kid": "k"}, claims, public),
        "the public key's text as a secret": lambda claims: forged({"alg": "HS256", "kid": "k"}, claims, pem(provider.key)),
        "the public key and the name of its algorithm": lambda claims: forged({"alg": "ES256", "kid": "k"}, claims, public),
        "the client's secret": lambda claims: forged({"alg": "HS256", "kid": "k"}, claims, SECRET),
        "another key": lambda claims: jwt.encode(claims, other, "ES256", headers={"kid": "k"}),
        "a key of its own": lambda claims: jwt.encode(claims, other, "ES256", headers={"kid": "x", "jku": "http://127.0.0.1:1"}),
        "no token": lambda claims: "x",
    }  # fmt: skip


def test_a_token_that_is_forged(place: Place, browser: httpx.Client) -> None:
    for name, forge in forgeries(place.provider).items():
        place.provider.sign = forge
        assert place.sign_in(browser).status_code == 401, name
    assert SESSION not in browser.cookies
    place.provider.sign = None
    assert place.sign_in(browser).status_code == 303


def test_somebody_whom_nobody_has_invited(place: Place, browser: httpx.Client) -> None:
    for subject in (f"id|{uuid4().hex}", str(uuid4())):
        place.provider.subject = subject
        refused(place.sign_in(browser), 403, f"knows you as “{subject}”")
    assert SESSION not in browser.cookies
    place.provider.subject = "<script>alert(1)</script>"
    assert "<script>alert" not in place.sign_in(browser).text


# -- a provider that is out of order


BROKEN: dict[str, tuple[int, bytes]] = {
    "fails": (500, b"{}"),
    "sends elsewhere": (302, b""),
    "says nothing": (200, b""),
    "sends no JSON": (200, b"<html>"),
    "sends a list": (200, b"[]"),
    "sends deep JSON": (200, b"[" * 200_000),
    "sends too much": (200, b" " * 1_000_001 + b"{}"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_token_endpoint_that_is_out_of_order(broken: tuple[int, bytes], place: Place, browser: httpx.Client) -> None:
    place.provider.bodies[TOKEN] = broken
    said = place.sign_in(browser)
    refused(said, 401 if broken == (200, b"") else 503, "sign")
    assert place.pages.sign_in(browser, place.pages.newcomer()[1]).status_code == 303, "other ways go on"


def test_a_token_endpoint_that_never_ends(place: Place, browser: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openid, "SECONDS", 0.5)
    place.provider.endless = {TOKEN}
    refused(place.sign_in(browser), 503, "does not respond as expected")


def anew(**options: Any) -> Any:
    provider = identity_provider(Settings())
    assert provider is not None
    return openid.Provider(provider.issuer, provider.client_id, SECRET, **options)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"issuer": "https://evil.example"}, "of another issuer, 'https://evil.example'"),
        ({"issuer": None}, "of another issuer"),
        ({"token_endpoint": "http://id.example/token"}, "token_endpoint must be an https://"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint must be an https://"),
        ({"end_session_endpoint": "https://id.example/\r\nX: y"}, "end_session_endpoint must be an https://"),
        ({"jwks_uri": "file:///etc/passwd"}, "jwks_uri must be an https://"),
        ({"jwks_uri": 5}, "jwks_uri must be an https://"),
    ],
)
async def test_a_discovery_document_that_cannot_be_believed(metadata: Claims, says: str, place: Place) -> None:
    place.provider.metadata = metadata
    provider = anew()
    with pytest.raises(RagError, match=re.escape(says)):
        await provider.address(Attempt(), "http://127.0.0.1/sign-in/callback")


async def test_a_provider_that_is_away_is_left_in_peace_and_comes_back(place: Place) -> None:
    place.provider.bodies[DISCOVERY] = (500, b"")
    patient, hasty = anew(cooldown=1000.0), anew(cooldown=-1.0)
    for provider in (patient, patient, hasty):
        with pytest.raises(RagError, match="with status 500"):
            await provider.metadata()
    assert len(place.provider.asked(DISCOVERY)) == 2
    place.provider.bodies.clear()
    assert (await hasty.metadata()).token == place.provider.issuer + TOKEN


async def test_keys_that_are_endless_are_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = anew()
    keys = (await provider.metadata()).keys
    place.provider.bodies[KEYS] = (200, b" " * 1_000_001)
    with pytest.raises(RagError, match="more than 1000000 bytes"):
        await keys.find("k")
    monkeypatch.setattr(openid, "SECONDS", 0.3)
    place.provider.bodies.clear()
    place.provider.endless = {KEYS}
    with pytest.raises(RagError, match=r"within 0\.3 seconds"):
        await (await anew().metadata()).keys.find("k")


async def test_a_secret_goes_into_the_form_where_the_provider_takes_it_nowhere_else(place: Place) -> None:
    place.provider.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    attempt = Attempt()
    asked = {"nonce": attempt.nonce, "code_challenge": attempt.challenge, "redirect_uri": "http://127.0.0.1/x"}
    place.provider.client_secret, kept = SECRET, place.provider.client_secret
    try:
        claims = await anew().claims({"code": place.provider.code(**asked)}, attempt, "http://127.0.0.1/x")
    finally:
        place.provider.client_secret = kept
    assert claims.subject == str(place.user)
    assert place.provider.asked(TOKEN)[0]["client_secret"] == SECRET


# -- where the server is


def test_an_address_that_a_browser_made_up_is_not_come_back_to(place: Place, browser: httpx.Client) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example"):
        said = browser.get("/sign-in/provider", headers={"Host": host})
        refused(said, 421, "RAG_PUBLIC_URL must be set")


def test_behind_a_proxy_the_setting_says_where_and_cookies_are_for_https_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_PUBLIC_URL", "https://rag.example")
    secure = f"__Host-{COOKIE}"
    with served() as client:

        def come_back(asked: dict[str, str], name: str, secret: str) -> httpx.Response:
            said = {"code": place.provider.code(**asked), "state": asked["state"]}
            return client.get("/sign-in/callback", params=said, headers={"Cookie": f"{name}={secret}"})

        sent = client.get("/sign-in/provider?next=/documents", headers={"Host": "evil.example"})
        asked = dict(parse_qsl(urlsplit(sent.headers["location"]).query))
        assert asked["redirect_uri"] == "https://rag.example/sign-in/callback"
        [cookie] = sent.headers.get_list("set-cookie")
        assert cookie.startswith(f"{secure}=") and "; Secure" in cookie
        secret = cookie.partition("=")[2].partition(";")[0]
        refused(come_back(asked, COOKIE, secret), 403, "started in another browser")  # http sets that one, too
        back = come_back(asked, secure, secret)
        assert (back.status_code, back.headers["location"]) == (303, "/documents")
        kept = {each.partition("=")[0]: each for each in back.headers.get_list("set-cookie")}
        assert "; Secure" in kept[f"__Host-{SESSION}"] and SESSION not in kept
        assert "Max-Age=0" in kept[secure]


# -- and out again


def sign_out(browser: httpx.Client) -> httpx.Response:
    csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.get("/").text)
    assert csrf
    return browser.post("/sign-out", data={"csrf": csrf[1]}, headers=OWN)


def test_signing_out_here_and_at_the_provider(place: Place, browser: httpx.Client) -> None:
    place.sign_in(browser)
    stolen = browser.cookies[SESSION]
    out = sign_out(browser)
    assert out.status_code == 200 and "storage" in out.headers["clear-site-data"]
    delay, _, address = out.headers["refresh"].partition("; url=")
    assert delay == "0" and address.startswith(f"{place.provider.issuer}/logout?")
    assert parse_qs(urlsplit(address).query) == {
        "client_id": ["rag"],
        "post_logout_redirect_uri": [f"{str(browser.base_url).rstrip('/')}/sign-in"],
    }
    assert SESSION not in browser.cookies
    browser.cookies.set(SESSION, stolen)
    assert browser.get(USAGE, headers=OWN).status_code == 401


def test_whoever_came_by_a_code_signs_out_here_alone(place: Place, browser: httpx.Client) -> None:
    place.pages.sign_in(browser, place.pages.newcomer()[1])
    out = sign_out(browser)
    assert (out.status_code, out.headers["location"]) == (303, "/sign-in")


# -- and what nobody is told


def test_no_log_has_a_code_or_a_secret(place: Place, browser: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "rag_app"):
        asked = place.leave(browser)
        code, attempt = place.provider.code(**asked), Attempt(browser.cookies[COOKIE])
        place.come_back(browser, code=code, state=attempt.state)
        place.provider.claims = {"nonce": "x"}
        place.sign_in(browser)
    assert "nobody was signed in by" in caplog.text
    for secret in (code, attempt.secret, attempt.state, attempt.verifier, SECRET, browser.cookies[SESSION]):
        assert secret not in caplog.text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"RAG_OIDC_CLIENT_ID": None}, "go together"),
        ({"RAG_OIDC_ISSUER": None}, "go together"),
        ({"RAG_OIDC_ISSUER": "http://id.example"}, "RAG_OIDC_ISSUER must be an https://"),
        ({"RAG_OIDC_SCOPES": "profile"}, "RAG_OIDC_SCOPES must include openid"),
    ],
)
def test_what_cannot_work_is_refused(
    changes: dict[str, str | None], says: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in changes.items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(Misconfigured, match=says):
        identity_provider(Settings())
