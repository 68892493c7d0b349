"""Tokens without a server around them; tests/contract has the ones that are refused."""

from datetime import UTC, datetime, timedelta, tzinfo

import jwt
import pytest
from hypothesis import given, strategies as st

from rag_app.access import tokens as auth
from rag_app.access.tokens import Claims, PublicKeys, TokenReader, bearer_token, issue_token
from rag_app.domain.errors import Misconfigured, Unauthenticated

SECRET = "k" * 32


@pytest.mark.parametrize("secret", ["", "k" * 31, "ä" * 15 + "k"])
def test_a_short_secret_is_refused_at_start_and_for_issuing(secret: str) -> None:
    with pytest.raises(Misconfigured, match="at least 32"):
        TokenReader(secret)
    with pytest.raises(Misconfigured, match="at least 32"):
        issue_token("ada", secret)


async def test_the_length_is_in_bytes() -> None:
    assert await TokenReader("ä" * 16).claims(issue_token("ada", "ä" * 16)) == Claims("ada")


@pytest.mark.parametrize(
    "secret", ["-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----", "ssh-rsa " + "A" * 40]
)
def test_a_public_key_is_no_secret(secret: str) -> None:
    with pytest.raises(Misconfigured, match="cannot be used"):
        TokenReader(secret)


def test_the_secret_is_not_shown() -> None:
    assert SECRET not in repr(TokenReader(SECRET))


def test_a_token_says_who_for_how_long_from_whom_and_for_whom() -> None:
    token = issue_token("ada", SECRET, audience="rag", issuer="us", lifetime=timedelta(minutes=5))
    claims = jwt.decode(token, SECRET, algorithms=["HS256"], audience="rag", issuer="us")
    assert (claims["sub"], claims["aud"], claims["iss"]) == ("ada", "rag", "us")
    assert claims["exp"] - claims["iat"] == 300
    assert abs(claims["iat"] - datetime.now(UTC).timestamp()) < 60


async def test_without_an_expected_audience_a_token_for_somebody_is_not_for_us() -> None:
    with pytest.raises(Unauthenticated):
        await TokenReader(SECRET).claims(issue_token("ada", SECRET, audience="somebody"))


async def test_a_token_may_say_for_which_kind_of_client_it_is() -> None:
    assert await TokenReader(SECRET).claims(issue_token("ada", SECRET, client="extension")) == Claims(
        "ada", "extension"
    )
    odd = {"sub": "ada", "exp": 4102444800, "client": ["extension"]}
    assert await TokenReader(SECRET).claims(jwt.encode(odd, SECRET, "HS256")) == Claims("ada")


@pytest.mark.parametrize("header", ["", " ", "Bearer", "Bearer ", "Basic abc", "abc", "Bearerabc"])
def test_a_header_without_a_token(header: str) -> None:
    assert bearer_token(header) is None


@given(st.text())
async def test_no_text_is_a_token_by_chance(text: str) -> None:
    for tokens in (TokenReader(SECRET), TokenReader(no_keys())):
        with pytest.raises(Unauthenticated, match=r"^The token is not valid$"):
            await tokens.claims(text)


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=255).filter(bool))
async def test_a_token_with_one_byte_changed_is_not_valid(position: int, flip: int) -> None:
    token = bytearray(issue_token("ada", SECRET).rpartition(".")[0].encode())
    signature = issue_token("ada", SECRET).rpartition(".")[2]
    token[position % len(token)] ^= flip
    with pytest.raises(Unauthenticated):
        await TokenReader(SECRET).claims(token.decode("latin-1") + "." + signature)


@pytest.mark.parametrize(
    "url",
    [
        "http://id.example/jwks.json",
        "http://127.0.0.1.example/jwks.json",
        "http://localhost.example/",
        "http://[::2]/",
        "https://",
        "https://[",
        "file:///etc/passwd",
        "id.example",
        "",
    ],
)
def test_keys_come_over_a_wire_that_nobody_else_writes_to(url: str) -> None:
    with pytest.raises(Misconfigured, match="the URL of public keys must be https"):
        PublicKeys.from_url(url)


@pytest.mark.parametrize(
    "url", ["https://id.example/jwks.json", "http://localhost:9999/", "http://127.0.0.53/", "http://[::1]:80/"]
)
def test_keys_are_not_fetched_before_a_token_needs_them(url: str) -> None:
    assert PublicKeys.from_url(url).where == url


def no_keys() -> PublicKeys:
    def read() -> list[jwt.PyJWK]:
        raise AssertionError("read for a token that cannot be ours")

    return PublicKeys("nowhere", read, 0, 0)


class Later(datetime):
    """The clock, an hour ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(hours=1)


async def test_a_token_that_was_valid_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = TokenReader(SECRET)
    token = issue_token("ada", SECRET, lifetime=timedelta(minutes=50))
    assert await tokens.claims(token) == await tokens.claims(token) == Claims("ada")
    monkeypatch.setattr(auth, "time", lambda: Later.now().timestamp())
    monkeypatch.setattr("jwt.api_jwt.datetime", Later)
    for _ in range(2):
        with pytest.raises(Unauthenticated, match="expired"):
            await tokens.claims(token)


async def test_a_bounded_number_of_valid_tokens_is_known_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_MOST_VERIFIED", 3)
    tokens = TokenReader(SECRET)
    valid = [issue_token(f"user {n}", SECRET) for n in range(5)]
    for token in valid:
        with pytest.raises(Unauthenticated):
            await tokens.claims(token[:-4])
        assert [(await tokens.claims(token)).subject for _ in range(2)] == [f"user {valid.index(token)}"] * 2
    assert list(tokens._verified) == valid[2:]
