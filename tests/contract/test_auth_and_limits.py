"""Who is let in, and how often."""

import base64
import json
import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import jwt
import pytest

from rag_app.access.tokens import issue_token
from tests.contract.conftest import AUDIENCE, ISSUER, SECRET, Backstage
from tests.contract.test_errors import ASK, PATHS, problem

CLAIMS = {"sub": "ada", "aud": AUDIENCE, "iss": ISSUER, "exp": 4102444800}


def token(secret: str = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    """A token as good as any, but for what is given; None leaves a claim out."""
    return jwt.encode({k: v for k, v in {**CLAIMS, **claims}.items() if v is not None}, secret, algorithm)


def unsigned() -> str:
    header, claims = ({"alg": "none", "typ": "JWT"}, CLAIMS)
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, claims))
        + "."
    )


BAD: dict[str, Callable[[], str | None]] = {
    "no header": lambda: None,
    "empty": lambda: "",
    "no token": lambda: "Bearer",
    "another scheme": lambda: f"Basic {token()}",
    "the bare token": token,
    "no token at all": lambda: "Bearer nonsense",
    "three parts of nothing": lambda: "Bearer a.b.c",
    "not signed": lambda: f"Bearer {unsigned()}",
    "another algorithm": lambda: f"Bearer {token(algorithm='HS384', secret=SECRET * 2)}",
    "the same secret, another algorithm": lambda: f"Bearer {token(algorithm='HS512', secret=SECRET)}",
    "another secret": lambda: f"Bearer {token('another-secret-of-more-than-32-bytes')}",
    "expired": lambda: f"Bearer {token(exp=int(time.time()) - 60)}",
    "never expires": lambda: f"Bearer {token(exp=None)}",
    "expires at infinity": lambda: f"Bearer {token(exp=math.inf)}",
    "expires in more seconds than a float can say": lambda: f"Bearer {token(exp=10**400)}",
    "begins at infinity": lambda: f"Bearer {token(nbf=math.inf)}",
    "a header of many brackets": lambda: f"Bearer {base64.urlsafe_b64encode(b'[' * 3000).decode()}.e30.e30",
    "expires at no number": lambda: f"Bearer {token(exp='soon')}",
    "not yet valid": lambda: f"Bearer {token(nbf=int(time.time()) + 600)}",
    "another audience": lambda: f"Bearer {token(aud='somebody-else')}",
    "no audience": lambda: f"Bearer {token(aud=None)}",
    "another issuer": lambda: f"Bearer {token(iss='https://evil.test')}",
    "no issuer": lambda: f"Bearer {token(iss=None)}",
    "no subject": lambda: f"Bearer {token(sub=None)}",
    "an empty subject": lambda: f"Bearer {token(sub=' ')}",
    "an endless subject": lambda: f"Bearer {token(sub='x' * 256)}",
    "a subject with a NUL": lambda: "Bearer " + token(sub="a\0b"),
}


@pytest.mark.filterwarnings("ignore::jwt.InsecureKeyLengthWarning")
@pytest.mark.parametrize("case", BAD)
def test_who_is_not_let_in(case: str, anonymous: httpx.Client, backstage: Backstage) -> None:
    authorization = BAD[case]()
    headers = {} if authorization is None else {"Authorization": authorization}

    response = anonymous.post("/api/rag/search", json=ASK, headers=headers)

    error = problem(response, 401, "unauthenticated")
    assert response.headers["www-authenticate"] == "Bearer"
    assert error["message"] in {
        "Send a token: `Authorization: Bearer <JWT>`",
        "The token has expired",
        "The token is not valid",
    }
    assert (case == "expired") == (error["message"] == "The token has expired")
    assert "x-ratelimit-limit" not in response.headers
    assert not backstage.pipeline.asked and not backstage.limiter.counts


@pytest.mark.parametrize("path", PATHS)
def test_every_path_wants_a_token_before_it_reads_a_body(path: str, anonymous: httpx.Client) -> None:
    problem(anonymous.post(path, content=b"{"), 401, "unauthenticated")


@pytest.mark.parametrize(
    "authorization",
    [
        f"Bearer {token()}",
        f"bearer   {token()}",
        f"Bearer {token(aud=['somebody-else', AUDIENCE])}",
        f"Bearer {issue_token('ada', SECRET, audience=AUDIENCE, issuer=ISSUER, lifetime=timedelta(hours=2))}",
    ],
)
def test_who_is_let_in(authorization: str, anonymous: httpx.Client) -> None:
    assert anonymous.post("/api/rag/search", json=ASK, headers={"Authorization": authorization}).status_code == 200


def test_clocks_may_be_a_few_seconds_apart(anonymous: httpx.Client) -> None:
    late = {"Authorization": f"Bearer {token(exp=int(time.time()) - 1)}"}
    assert anonymous.post("/api/rag/search", json=ASK, headers=late).status_code == 200


def limits(response: httpx.Response) -> tuple[str, str, str]:
    return tuple(response.headers[f"x-ratelimit-{name}"] for name in ("limit", "remaining", "reset"))  # type: ignore[return-value]


def test_sixty_a_minute_counted_over_both_endpoints_and_their_aliases(
    client: httpx.Client, backstage: Backstage
) -> None:
    reset = str(backstage.limiter.resets_at)
    backstage.limiter.counts["rag_retrieval:ada"] = 56

    assert limits(client.post("/api/rag/search", json=ASK)) == ("60", "3", reset)
    assert limits(client.post("/functions/v1/rag-search", json=ASK)) == ("60", "2", reset)
    assert limits(client.post("/api/rag/answer", json={})) == ("60", "1", reset), "errors count, and say so"
    assert limits(client.post("/functions/v1/rag-answer", content=b"{")) == ("60", "0", reset)

    asked_at = time.time()
    refused = client.post("/api/rag/search", json=ASK)
    problem(refused, 429, "rate_limited")
    assert limits(refused) == ("60", "0", reset)
    assert 1 <= int(refused.headers["retry-after"]) <= math.ceil(int(reset) - asked_at) + 1

    somebody_else = {"Authorization": f"Bearer {token(sub='grace')}"}
    assert limits(client.post("/api/rag/search", json=ASK, headers=somebody_else))[1] == "59"


def test_retry_after_is_never_zero(client: httpx.Client, backstage: Backstage) -> None:
    backstage.limiter.now = time.time() - 60
    backstage.limiter.counts["rag_retrieval:ada"] = 60
    assert client.post("/api/rag/search", json=ASK).headers["retry-after"] == "1"


def test_only_the_surface_is_limited(client: httpx.Client, backstage: Backstage) -> None:
    for path in ("/health/live", "/openapi.json", "/nothing"):
        assert "x-ratelimit-limit" not in client.get(path).headers
    assert not backstage.limiter.counts
