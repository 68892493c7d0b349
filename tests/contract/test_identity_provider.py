"""Tokens signed by an identity provider: its keys come from a real server, or from a file, and change."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from rag_app.access import tokens as auth
from rag_app.access.tokens import PublicKeys, TokenReader, issue_token
from rag_app.domain.errors import Misconfigured
from rag_app.http.entrance import Entrance
from rag_app.http.server import api
from rag_app.surfaces.registry import SURFACES
from tests.contract.conftest import AUDIENCE, ISSUER, SECRET, Backstage, serve
from tests.contract.test_errors import ASK, problem
from tests.waiting import PATIENCE, wait_for

CLAIMS = {"sub": "ada", "aud": AUDIENCE, "iss": ISSUER, "exp": 4102444800}
NEVER = 1000.0
AT_ONCE = 0.0

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@pytest.fixture(scope="module")
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def other_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(key: Private, kid: str | None = None, **more: object) -> dict[str, Any]:
    if isinstance(key, rsa.RSAPrivateKey):
        made = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        made = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**made, **({"kid": kid} if kid else {}), **more}


def pem(key: Any) -> str:
    text: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return text.decode()


def signed(key: Private, kid: str | None = None, algorithm: str | None = None, **claims: object) -> str:
    algorithm = algorithm or ("RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256")
    return jwt.encode({**CLAIMS, **claims}, key, algorithm, headers={"kid": kid} if kid else None)


def forged(header: dict[str, object], secret: bytes | None = None) -> str:
    """A token with any header, with an HMAC or without a signature."""
    text = ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, CLAIMS)
    )
    signature = hmac.digest(secret, text.encode(), hashlib.sha256) if secret is not None else b""
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


@dataclass
class Provider:
    """A JWKS document on a real port."""

    keys: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    body: bytes | None = None
    released: threading.Event = field(default_factory=threading.Event)
    """Until it is, nothing is answered."""
    fetched: int = 0
    url: str = ""

    @contextmanager
    def running(self, port: int = 0) -> Iterator[None]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.fetched += 1
                provider.released.wait(PATIENCE)
                body = provider.body if provider.body is not None else json.dumps({"keys": provider.keys}).encode()
                self.send_response(provider.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with suppress(ConnectionError):  # nobody waits for it any longer
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            self.url = f"http://127.0.0.1:{server.server_port}/.well-known/jwks.json"
            try:
                yield
            finally:
                server.shutdown()


@dataclass
class Clock:
    """Moves when it is told to."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(auth, "monotonic", clock)
    return clock


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    provider.released.set()
    with provider.running():
        yield provider
        provider.released.set()


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The fetches that somebody waited for, or waits for, once for each of them."""
    waited: list[object] = []
    wait = asyncio.wait

    async def counted(tasks: Any, **options: Any) -> Any:
        waited.extend(task for task in tasks if "PublicKeys" in str(task.get_coro()))
        return await wait(tasks, **options)

    monkeypatch.setattr(asyncio, "wait", counted)
    return waited


Send = Callable[[str], httpx.Response]


@contextmanager
def an_api(keys: PublicKeys) -> Iterator[Send]:
    """Sends a token to an API that believes these keys."""
    backstage = Backstage()
    app = api(
        backstage.services(),
        backstage.access(),
        Entrance(TokenReader(keys, AUDIENCE, ISSUER)),
        SURFACES,
        version="0.0.test",
    )
    with serve(app) as url, httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client:
        yield lambda token: client.post("/api/rag/search", json=ASK, headers={"Authorization": f"Bearer {token}"})


def test_the_providers_tokens_are_accepted_and_its_keys_are_fetched_once(
    provider: Provider, rsa_key: rsa.RSAPrivateKey, ec_key: ec.EllipticCurvePrivateKey
) -> None:
    provider.keys = [jwk(rsa_key, "r", alg="RS256", use="sig"), jwk(ec_key, "e")]
    with an_api(PublicKeys.from_url(provider.url)) as send:
        assert provider.fetched == 0
        for token in (signed(rsa_key, "r"), signed(ec_key, "e"), signed(rsa_key, "r", aud=["x", AUDIENCE])):
            assert send(token).status_code == 200
        expired = problem(send(signed(ec_key, "e", exp=int(time.time()) - 60)), 401, "unauthenticated")
        assert expired["message"] == "The token has expired"
        for claim in ({"aud": "x"}, {"iss": "https://evil.test"}, {"sub": " "}, {"nbf": int(time.time()) + 600}):
            problem(send(signed(ec_key, "e", **claim)), 401, "unauthenticated")
    assert provider.fetched == 1


def test_many_first_requests_at_once_fetch_once(
    provider: Provider, ec_key: ec.EllipticCurvePrivateKey, waited: list[object]
) -> None:
    provider.keys = [jwk(ec_key, "e")]
    provider.released.clear()
    with an_api(PublicKeys.from_url(provider.url)) as send, ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(send, signed(ec_key, "e")) for _ in range(8)]
        try:
            assert wait_for(lambda: len(waited) == 8)
        finally:
            provider.released.set()
        assert {each.result().status_code for each in sent} == {200}
    assert provider.fetched == 1


@pytest.mark.filterwarnings("ignore::jwt.InsecureKeyLengthWarning")
def test_a_token_does_not_choose_its_algorithm(
    provider: Provider,
    rsa_key: rsa.RSAPrivateKey,
    ec_key: ec.EllipticCurvePrivateKey,
    other_key: ec.EllipticCurvePrivateKey,
) -> None:
    small = rsa.generate_private_key(65537, 1024)
    encoded = base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("=")
    provider.keys = [
        jwk(rsa_key, "r"),
        jwk(ec_key, "e"),
        jwk(small, "small"),
        jwk(rsa_key, "enc", use="enc"),
        jwk(rsa_key, "sha512", alg="RS512"),
        {"kty": "oct", "kid": "oct", "k": encoded},
        {"kty": "oct", "kid": "posing", "k": encoded, "alg": "RS256"},
    ]
    public = [pem(rsa_key).encode(), pem(rsa_key).strip().encode(), pem(ec_key).encode()]
    public += [json.dumps(key).encode() for key in provider.keys[:2]] + [b""]
    tokens = {
        "not signed": forged({"alg": "none", "kid": "r"}),
        "not signed, and no algorithm": forged({"kid": "r"}),
        "a list of algorithms": forged({"alg": ["RS256"], "kid": "r"}),
        "the secret of a deployment": issue_token("ada", SECRET, audience=AUDIENCE, issuer=ISSUER),
        "a symmetric key in the set": forged({"alg": "HS256", "kid": "oct"}, SECRET.encode()),
        "a symmetric key that poses": forged({"alg": "RS256", "kid": "posing"}, SECRET.encode()),
        "another key": signed(other_key, "e"),
        "another key that it brings along": jwt.encode(
            CLAIMS, other_key, "ES256", headers={"kid": "e", "jwk": jwk(other_key, "e")}
        ),
        "another key at a place that it names": jwt.encode(
            CLAIMS, other_key, "ES256", headers={"kid": "e", "jku": "http://127.0.0.1:1/jwks"}
        ),
        "another hash": signed(rsa_key, "r", "RS512"),
        "another padding": signed(rsa_key, "r", "PS256"),
        "the algorithm of the set's key, which we do not accept": signed(rsa_key, "sha512", "RS512"),
        "a key for encryption": signed(rsa_key, "enc"),
        "a short key": signed(small, "small"),
        "the other key's name": signed(ec_key, "r"),
        "no name": signed(rsa_key),
        "a name that is no text": forged({"alg": "RS256", "kid": 5}),
    }
    tokens |= {f"public key {i} as a secret": forged({"alg": "HS256", "kid": "r"}, key) for i, key in enumerate(public)}
    tokens |= {f"public key {i} as RS256": forged({"alg": "RS256", "kid": "r"}, key) for i, key in enumerate(public)}
    with an_api(PublicKeys.from_url(provider.url)) as send:
        assert send(signed(rsa_key, "r")).status_code == 200
        for name, token in tokens.items():
            response = send(token)
            assert response.status_code == 401, name
            assert problem(response, 401, "unauthenticated")["message"] == "The token is not valid", name
    assert provider.fetched == 1


def test_a_new_key_is_fetched_when_a_token_names_it(
    provider: Provider, rsa_key: rsa.RSAPrivateKey, ec_key: ec.EllipticCurvePrivateKey
) -> None:
    provider.keys = [jwk(rsa_key, "old")]
    with an_api(PublicKeys.from_url(provider.url, lifespan=NEVER, cooldown=AT_ONCE)) as send:
        assert send(signed(rsa_key, "old")).status_code == 200
        provider.keys.append(jwk(ec_key, "new"))
        assert [send(signed(ec_key, "new")).status_code for _ in range(3)] == [200] * 3
        assert provider.fetched == 2
        assert send(signed(rsa_key, "old")).status_code == 200, "both, while the provider has both"


def test_made_up_key_ids_do_not_make_us_a_nuisance(
    provider: Provider, ec_key: ec.EllipticCurvePrivateKey, clock: Clock
) -> None:
    provider.keys = [jwk(ec_key, "e")]
    with an_api(PublicKeys.from_url(provider.url, lifespan=NEVER, cooldown=1.0)) as send:
        assert send(signed(ec_key, "e")).status_code == 200
        provider.keys.append(jwk(ec_key, "new"))
        assert {send(signed(ec_key, f"forged-{i}")).status_code for i in range(20)} == {401}
        assert provider.fetched == 1
        clock.now += 1.1
        assert send(signed(ec_key, "new")).status_code == 200
        assert {send(signed(ec_key, f"forged-{i}")).status_code for i in range(20)} == {401}
    assert provider.fetched == 2


def test_a_withdrawn_key_lives_no_longer_than_the_lifespan(
    provider: Provider, rsa_key: rsa.RSAPrivateKey, ec_key: ec.EllipticCurvePrivateKey, clock: Clock
) -> None:
    provider.keys = [jwk(rsa_key, "stolen"), jwk(ec_key, "e")]
    with an_api(PublicKeys.from_url(provider.url, lifespan=300, cooldown=AT_ONCE)) as send:
        assert send(signed(rsa_key, "stolen")).status_code == 200
        provider.keys.pop(0)
        clock.now += 301
        assert send(signed(rsa_key, "stolen")).status_code == 401
        assert send(signed(ec_key, "e")).status_code == 200


BROKEN = [(500, None), (302, None), (200, b""), (200, b"{"), (200, b"[]"), (200, b'{"keys": []}'), (200, b"\xff\xfe")]


@pytest.mark.parametrize(("status", "body"), BROKEN)
def test_a_provider_that_is_out_of_order_shuts_out_nobody_it_has_let_in(
    status: int, body: bytes | None, provider: Provider, ec_key: ec.EllipticCurvePrivateKey
) -> None:
    provider.keys = [jwk(ec_key, "e")]
    with an_api(PublicKeys.from_url(provider.url, lifespan=AT_ONCE, cooldown=AT_ONCE)) as send:
        assert send(signed(ec_key, "e")).status_code == 200
        provider.status, provider.body = status, body
        assert [send(signed(ec_key, "e")).status_code for _ in range(3)] == [200] * 3
        assert send(signed(ec_key, "new")).status_code == 401
        assert provider.fetched > 1

        provider.status, provider.body, provider.keys = 200, None, [jwk(ec_key, "new")]
        assert send(signed(ec_key, "new")).status_code == 200


@pytest.mark.parametrize(("status", "body"), [*BROKEN, (200, b'{"keys": [{"kty": "RSA", "alg": []}]}')])
def test_without_any_key_it_is_a_fault_of_the_server_until_the_provider_is_back(
    status: int, body: bytes | None, provider: Provider, ec_key: ec.EllipticCurvePrivateKey
) -> None:
    provider.status, provider.body = status, body
    with an_api(PublicKeys.from_url(provider.url, cooldown=AT_ONCE)) as send:
        error = problem(send(signed(ec_key, "e")), 500, "internal_error")
        assert provider.url not in error["message"]
        problem(send(forged({"alg": "none"})), 401, "unauthenticated")
        assert provider.fetched == 1

        provider.status, provider.body, provider.keys = 200, None, [jwk(ec_key, "e")]
        assert send(signed(ec_key, "e")).status_code == 200


def test_a_provider_that_is_away_is_left_in_peace(provider: Provider, ec_key: ec.EllipticCurvePrivateKey) -> None:
    provider.status = 500
    with an_api(PublicKeys.from_url(provider.url, cooldown=NEVER)) as send:
        assert {send(signed(ec_key, "e")).status_code for _ in range(5)} == {500}
    assert provider.fetched == 1


def test_a_provider_that_nobody_answers_for_and_that_comes_back(ec_key: ec.EllipticCurvePrivateKey) -> None:
    provider = Provider([jwk(ec_key, "e")])
    provider.released.set()
    with provider.running():
        url = httpx.URL(provider.url)
    with an_api(PublicKeys.from_url(str(url), lifespan=AT_ONCE, cooldown=AT_ONCE)) as send:
        problem(send(signed(ec_key, "e")), 500, "internal_error")
        assert url.port is not None
        with provider.running(url.port):
            assert send(signed(ec_key, "e")).status_code == 200
        assert [send(signed(ec_key, "e")).status_code for _ in range(3)] == [200] * 3


def test_nobody_with_a_known_key_waits_twice_for_a_provider_that_hangs(
    provider: Provider, ec_key: ec.EllipticCurvePrivateKey, monkeypatch: pytest.MonkeyPatch, waited: list[object]
) -> None:
    monkeypatch.setattr(auth, "FETCH_SECONDS", 3.0)
    provider.keys = [jwk(ec_key, "e")]
    keys = PublicKeys.from_url(provider.url, lifespan=AT_ONCE, cooldown=AT_ONCE)
    with an_api(keys) as send:
        assert send(signed(ec_key, "e")).status_code == 200
        provider.released.clear()
        assert send(signed(ec_key, "e")).status_code == 200
        assert wait_for(lambda: bool(keys._problem))
        waited.clear()
        assert [send(signed(ec_key, "e")).status_code for _ in range(5)] == [200] * 5
        assert not waited


# --- keys in a file


def test_keys_in_a_file_as_pem(
    tmp_path: Path,
    rsa_key: rsa.RSAPrivateKey,
    ec_key: ec.EllipticCurvePrivateKey,
    other_key: ec.EllipticCurvePrivateKey,
) -> None:
    (tmp_path / "keys.pem").write_text(f"# of our provider\n{pem(rsa_key)}\n{pem(other_key)}{pem(ec_key)}")
    with an_api(PublicKeys.in_file(tmp_path / "keys.pem")) as send:
        for key in (rsa_key, ec_key, other_key):
            for kid in (None, "whatever the provider calls it"):
                assert send(signed(key, kid)).status_code == 200
        assert send(signed(ec.generate_private_key(ec.SECP256R1()))).status_code == 401
        for secret in (pem(rsa_key), pem(rsa_key).strip(), (tmp_path / "keys.pem").read_text()):
            assert send(forged({"alg": "HS256"}, secret.encode())).status_code == 401
        assert send(forged({"alg": "none"})).status_code == 401


def test_keys_in_a_file_as_jwks(tmp_path: Path, rsa_key: rsa.RSAPrivateKey, ec_key: ec.EllipticCurvePrivateKey) -> None:
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [jwk(rsa_key, "r"), jwk(ec_key)]}))
    with an_api(PublicKeys.in_file(tmp_path / "jwks.json")) as send:
        for good in (signed(rsa_key, "r"), signed(ec_key), signed(ec_key, "a key without a name")):
            assert send(good).status_code == 200
        for bad in (signed(rsa_key), signed(rsa_key, "x"), signed(rsa_key, "r", "RS512")):
            assert send(bad).status_code == 401


def test_a_file_that_changes_is_read_again_and_one_that_breaks_changes_nothing(
    tmp_path: Path, rsa_key: rsa.RSAPrivateKey, ec_key: ec.EllipticCurvePrivateKey, clock: Clock
) -> None:
    file = tmp_path / "keys"

    def replace(text: str) -> None:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(file)
        clock.now += 21

    replace(pem(rsa_key))
    keys = PublicKeys.in_file(file, lifespan=20)

    def finish_reading() -> None:
        wait_for(lambda: keys._reading is None)

    with an_api(keys) as send:
        assert send(signed(rsa_key, "r")).status_code == 200
        replace(json.dumps({"keys": [jwk(ec_key, "e")]}))
        assert (send(signed(ec_key, "e")).status_code, send(signed(rsa_key, "r")).status_code) == (200, 401)
        replace("half a fi")
        assert send(signed(ec_key, "e")).status_code == 200
        finish_reading()
        file.unlink()
        clock.now += 21
        assert send(signed(ec_key, "e")).status_code == 200
        finish_reading()
        replace(pem(rsa_key))
        assert send(signed(rsa_key, "r")).status_code == 200
        assert send(signed(ec_key, "e")).status_code == 401


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file"),
        ("", "none of the keys is a public key for RS256 or ES256"),
        ("{", "Expecting property name"),
        ("{}", "did not contain any keys"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "none of the keys is a public key for RS256 or ES256"),
        ("-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----", "cannot be used: ."),
        ("private", "cannot be used: ."),
        ("ed25519", "Ed25519PublicKey is neither an RSA nor an EC key"),
        ("p384", "none of the keys is a public key for RS256 or ES256"),
        ("rsa1024", "an RSA key must have at least 2048 bits"),
    ],
)
def test_a_file_without_usable_keys_is_refused_before_anything_is_served(
    text: str | None, says: str, tmp_path: Path, ec_key: ec.EllipticCurvePrivateKey
) -> None:
    made: dict[str | None, Callable[[], str]] = {
        "private": lambda: ec_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "ed25519": lambda: pem(ed25519.Ed25519PrivateKey.generate()),
        "p384": lambda: pem(ec.generate_private_key(ec.SECP384R1())),
        "rsa1024": lambda: pem(rsa.generate_private_key(65537, 1024)),
    }
    if text is not None:
        (tmp_path / "keys").write_text(made.get(text, lambda: text)())
    with pytest.raises(Misconfigured, match=says) as refused:
        PublicKeys.in_file(tmp_path / "keys")
    assert str(tmp_path / "keys") in str(refused.value)
