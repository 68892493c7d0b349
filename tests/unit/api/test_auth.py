"""Tokens without a server around them; tests/contract has the ones that are refused."""

from datetime import UTC, datetime, timedelta

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_app.api.auth import Tokens, bearer_token, issue_token
from rag_app.domain.errors import Misconfigured, Unauthenticated

SECRET = "k" * 32


@pytest.mark.parametrize("secret", ["", "k" * 31, "ä" * 15 + "k"])
def test_a_short_secret_is_refused_at_start_and_for_issuing(secret: str) -> None:
    with pytest.raises(Misconfigured, match="at least 32"):
        Tokens(secret)
    with pytest.raises(Misconfigured, match="at least 32"):
        issue_token("ada", secret)


def test_the_length_is_in_bytes() -> None:
    assert Tokens("ä" * 16).subject(issue_token("ada", "ä" * 16)) == "ada"


@pytest.mark.parametrize(
    "secret", ["-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----", "ssh-rsa " + "A" * 40]
)
def test_a_public_key_is_no_secret(secret: str) -> None:
    with pytest.raises(Misconfigured, match="cannot be used"):
        Tokens(secret)


def test_the_secret_is_not_shown() -> None:
    assert SECRET not in repr(Tokens(SECRET))


def test_a_token_says_who_for_how_long_from_whom_and_for_whom() -> None:
    token = issue_token("ada", SECRET, audience="rag", issuer="us", lifetime=timedelta(minutes=5))
    claims = jwt.decode(token, SECRET, algorithms=["HS256"], audience="rag", issuer="us")
    assert (claims["sub"], claims["aud"], claims["iss"]) == ("ada", "rag", "us")
    assert claims["exp"] - claims["iat"] == 300
    assert abs(claims["iat"] - datetime.now(UTC).timestamp()) < 5


def test_without_an_expected_audience_a_token_for_somebody_is_not_for_us() -> None:
    with pytest.raises(Unauthenticated):
        Tokens(SECRET).subject(issue_token("ada", SECRET, audience="somebody"))


@given(st.text())
def test_no_text_is_a_token_by_chance(text: str) -> None:
    for header in (text, f"Bearer {text}"):
        with pytest.raises(Unauthenticated) as refused:
            Tokens(SECRET).subject(bearer_token(header))
        assert str(refused.value) in {"Send a token: `Authorization: Bearer <JWT>`", "The token is not valid"}


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=255).filter(bool))
def test_a_token_with_one_byte_changed_is_not_valid(position: int, flip: int) -> None:
    token = bytearray(issue_token("ada", SECRET).rpartition(".")[0].encode())
    signature = issue_token("ada", SECRET).rpartition(".")[2]
    token[position % len(token)] ^= flip
    with pytest.raises(Unauthenticated):
        Tokens(SECRET).subject(token.decode("latin-1") + "." + signature)
