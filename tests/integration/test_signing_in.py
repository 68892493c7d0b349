"""Signing in as a deployment configures it: settings, commands and the application itself, on a real database."""

import asyncio
from pathlib import Path
from uuid import uuid4

import httpx
import jwt
import pytest
import typer
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rag_app.access.tokens import Claims, TokenReader
from rag_app.application import create_app
from rag_app.console import database, orgs
from rag_app.console.doctor import doctor
from rag_app.console.serving import _prepare, claim_port, serve_at
from rag_app.console.users import token
from rag_app.database.urls import DatabaseUrls
from rag_app.domain.errors import InvalidInput, Misconfigured
from rag_app.settings import Settings
from tests.contract.conftest import serve
from tests.integration.conftest import ON_DEFAULT

pytestmark = ON_DEFAULT


@pytest.fixture
def slug(environment: str) -> str:
    database.upgrade()
    slug = f"signing-{uuid4().hex[:12]}"
    orgs.create_organization(slug)
    return slug


@pytest.fixture
def user(slug: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The id of a member of the organization."""
    capsys.readouterr()
    orgs.add_member(slug, f"ada@{slug}")
    return capsys.readouterr().out.split("\t")[1]


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: str) -> ec.EllipticCurvePrivateKey:
    """An identity provider's; the deployment knows its public half."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "keys.pem").write_bytes(public)
    monkeypatch.setenv("RAG_JWT_KEY_FILE", str(tmp_path / "keys.pem"))
    monkeypatch.delenv("RAG_JWT_SECRET")
    return key


def test_the_command_issues_tokens_for_people_and_for_the_extension(
    user: str, slug: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = TokenReader(Settings().jwt_secret(), "authenticated")
    for client in (None, "extension"):
        token(f"ada@{slug}", 1.0, client)
        assert asyncio.run(tokens.claims(capsys.readouterr().out.strip())) == Claims(user, client)
    with pytest.raises(InvalidInput, match="--client: accepted: extension"):
        token(f"ada@{slug}", 1.0, "browser")


def test_with_an_identity_provider_no_token_is_issued_here_and_no_secret_is_made(
    user: str, slug: str, key: ec.EllipticCurvePrivateKey, tmp_path: Path
) -> None:
    with pytest.raises(Misconfigured, match=r"tokens are issued by the owner of the keys in .*keys\.pem"):
        token(f"ada@{slug}", 1.0, None)

    claims = {"sub": user, "aud": "authenticated", "exp": 4102444800}
    with serve(create_app()) as url:
        statuses = [
            httpx.post(
                f"{url}/api/rag/search", json={"query_text": "?"}, headers={"Authorization": f"Bearer {each}"}
            ).status_code
            for each in (
                jwt.encode(claims, key, "ES256"),
                jwt.encode(claims, "a secret of the tests, long enough for HS256", "HS256"),
            )
        ]
    assert statuses == [200, 401]
    assert not list(tmp_path.rglob("jwt-secret"))


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RAG_DEFAULT_ORGANIZATION": "nobody"}, "RAG_DEFAULT_ORGANIZATION: no organization named 'nobody'; there are: "),
        ({"RAG_ORIGINS": "https://app.example, app.example"}, "'app.example' is not an origin"),
        ({"RAG_HOSTS": "salon.example, https://salon.example"}, "'https://salon.example' is not a host"),
        ({"RAG_JWT_SECRET": "", "RAG_JWT_KEY_FILE": "lost.pem"}, "the keys in lost.pem cannot be used: .*No such file"),
        ({"RAG_JWT_SECRET": "", "RAG_JWT_JWKS_URL": "http://id.example/jwks"}, "the URL of public keys must be https://"),
        ({"RAG_JWT_SECRET": "short"}, "at least 32"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_before_anything_is_served(
    variables: dict[str, str], says: str, slug: str, database_urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Misconfigured, match=says):
        asyncio.run(_prepare(Settings(), DatabaseUrls(database_urls[1], database_urls[0], private=False)))


@pytest.mark.parametrize("key", ["", "k"])
def test_doctor_and_serve_tell_a_provider_without_a_key(
    key: str,
    slug: str,
    database_urls: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RAG_LLM", "openai")
    monkeypatch.setenv("OPENAI_API_KEY", key)
    capsys.readouterr()
    asyncio.run(_prepare(Settings(), DatabaseUrls(database_urls[1], database_urls[0], private=False)))
    warning = "warning: gpt-4o-mini has no key, so it will refuse to answer: set OPENAI_API_KEY\n"
    assert capsys.readouterr().err == ("" if key else warning)
    assert healthy() is bool(key)
    assert ("!!  answers          gpt-4o-mini has no key: set OPENAI_API_KEY\n" in capsys.readouterr().out) is not bool(
        key
    )


def test_the_default_organization_is_one_that_exists(
    slug: str, database_urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_DEFAULT_ORGANIZATION", slug)
    asyncio.run(_prepare(Settings(), DatabaseUrls(database_urls[1], database_urls[0], private=False)))


WRONG_SETTINGS = {
    "RAG_JWT_SECRET": ("short", "the JWT secret has 5 bytes"),
    "RAG_ORIGINS": ("app.example", "RAG_ORIGINS: 'app.example' is not an origin"),
    "RAG_HOSTS": ("http://x/", "RAG_HOSTS: 'http://x/' is not a host"),
    "RAG_OIDC_ISSUER": ("http://id.example", "RAG_OIDC_ISSUER"),
    "RAG_REQUESTS_PER_MINUTE": ('{"nope": 5}', "RAG_REQUESTS_PER_MINUTE: there is no 'nope'"),
    "RAG_CONCURRENT_REQUESTS": ('{"nope": 5}', "RAG_CONCURRENT_REQUESTS: there is no 'nope'"),
    "RAG_URL_NETWORKS": ("hello", "RAG_URL_NETWORKS: 'hello' is not a network"),
}


def test_doctor_and_serve_tell_every_setting_that_is_wrong(
    slug: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAG_JWT_KEY_FILE", raising=False)
    monkeypatch.setenv("RAG_OIDC_CLIENT_ID", "rag")
    for name, (value, _) in WRONG_SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAG_DEFAULT_ORGANIZATION", "nobody")
    capsys.readouterr()
    assert not healthy()
    told = capsys.readouterr().out
    for _, says in WRONG_SETTINGS.values():
        assert told.count(f"!!  settings         {says}") == 1, told
    assert "!!  default          RAG_DEFAULT_ORGANIZATION: no organization named 'nobody'; there are: " in told
    with claim_port("127.0.0.1", 0) as claim, pytest.raises(Misconfigured) as refused:
        serve_at(Settings(), claim, 1)
    assert all(says in str(refused.value) for _, says in WRONG_SETTINGS.values())
    assert capsys.readouterr().err == "", "nothing is announced"


def healthy() -> bool:
    """What the command's status says."""
    with pytest.raises(typer.Exit) as left:
        doctor()
    return left.value.exit_code == 0


def test_doctor_says_whether_the_providers_keys_can_be_read(
    slug: str, key: ec.EllipticCurvePrivateKey, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert healthy()
    assert "ok  tokens           signed by the keys of" in capsys.readouterr().out
    monkeypatch.delenv("RAG_JWT_KEY_FILE")
    monkeypatch.setenv("RAG_JWT_JWKS_URL", "http://127.0.0.1:1/jwks.json")
    assert not healthy()
    assert "!!  tokens           the keys of http://127.0.0.1:1/jwks.json cannot be read" in capsys.readouterr().out
