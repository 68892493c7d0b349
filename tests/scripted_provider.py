"""An OpenID Connect provider on a real port that does what a test says: honest until then."""

import json
import threading
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

DISCOVERY, AUTHORIZE, TOKEN, KEYS, LOGOUT = (
    "/.well-known/openid-configuration", "/authorize", "/token", "/keys", "/logout",
)  # fmt: skip

Claims = dict[str, Any]


@dataclass
class ScriptedProvider:
    """Signs `subject` in, whoever asks. Its tokens say `claims` beside what they must; None leaves a claim out."""

    client_id: str = "rag"
    client_secret: str | None = None
    subject: str = ""
    claims: Claims = field(default_factory=dict)
    metadata: Claims = field(default_factory=dict)
    sign: Callable[[Claims], str] | None = None
    """Makes ID tokens, in place of an ES256 signature with `key`."""
    bodies: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """What a path answers whatever is asked."""
    endless: set[str] = field(default_factory=set)
    """Paths that send a byte now and then, for as long as anybody listens."""
    asks: bool = False
    """Whether a page has a button before a browser is sent back."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                provider.answer(self, parts.path, dict(parse_qsl(parts.query)))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                provider.answer(self, self.path, dict(parse_qsl(body.decode())))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def behave(self) -> None:
        """Be honest again."""
        for script in (self.claims, self.metadata, self.bodies, self.endless, self.requests):
            script.clear()
        self.sign = None

    def asked(self, path: str) -> list[dict[str, str]]:
        return [values for where, values in self.requests if where == path]

    def public_key(self) -> Claims:
        return {**ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True), "kid": "k", "use": "sig"}

    def code(self, **asked: str) -> str:
        """As `/authorize` makes one."""
        code = f"code-{len(self.codes)}-of-the-provider"
        self.codes[code] = asked
        return code

    def answer(self, handler: BaseHTTPRequestHandler, path: str, values: dict[str, str]) -> None:
        self.requests.append((path, values))
        with suppress(ConnectionError):  # nobody waits for it any longer
            if path in self.endless:
                handler.send_response(200)
                handler.end_headers()
                while not self.stopped.wait(0.05):
                    handler.wfile.write(b" ")
            elif path in self.bodies:
                self._send(handler, *self.bodies[path])
            else:
                {AUTHORIZE: self._authorize, TOKEN: self._token, LOGOUT: self._logout}.get(path, self._publish)(
                    handler, path, values
                )

    def _publish(self, handler: BaseHTTPRequestHandler, path: str, _: dict[str, str]) -> None:
        published = {
            DISCOVERY: {
                "issuer": self.issuer,
                "authorization_endpoint": self.issuer + AUTHORIZE,
                "token_endpoint": self.issuer + TOKEN,
                "jwks_uri": self.issuer + KEYS,
                "end_session_endpoint": self.issuer + LOGOUT,
                **self.metadata,
            },
            KEYS: {"keys": [self.public_key()]},
        }
        self._json(handler, 200 if path in published else 404, published.get(path, {}))

    def _authorize(self, handler: BaseHTTPRequestHandler, _: str, asked: dict[str, str]) -> None:
        back = f"{asked['redirect_uri']}?{urlencode({'code': self.code(**asked), 'state': asked['state']})}"
        if self.asks:
            page = f'<title>Provider</title><a href="{back.replace("&", "&amp;")}">Continue</a>'
            self._send(handler, 200, page.encode(), "text/html")
        else:
            self._send(handler, 302, b"", Location=back)

    def _token(self, handler: BaseHTTPRequestHandler, _: str, said: dict[str, str]) -> None:
        asked = self.codes.pop(said.get("code", ""), None)
        challenge = urlsafe_b64encode(sha256(said.get("code_verifier", "").encode()).digest()).decode().rstrip("=")
        secret = said.get("client_secret")
        if credentials := handler.headers.get("Authorization", "").partition("Basic ")[2]:
            secret = b64decode(credentials).decode().partition(":")[2]
        if secret != self.client_secret:
            self._json(handler, 401, {"error": "invalid_client"})
        elif asked is None or challenge != asked["code_challenge"] or said["redirect_uri"] != asked["redirect_uri"]:
            self._json(handler, 400, {"error": "invalid_grant", "error_description": "<b>of the provider</b>"})
        else:
            self._json(handler, 200, self.tokens(asked["nonce"]))

    def tokens(self, nonce: str) -> Claims:
        now, access = int(time()), "an access token"
        half = sha256(access.encode()).digest()[:16]
        said = {
            "iss": self.issuer,
            "aud": self.client_id,
            "sub": self.subject,
            "exp": now + 300,
            "iat": now,
            "nonce": nonce,
            "at_hash": urlsafe_b64encode(half).decode().rstrip("="),
            **self.claims,
        }
        said = {name: value for name, value in said.items() if value is not None}
        token = self.sign(said) if self.sign else jwt.encode(said, self.key, "ES256", headers={"kid": "k"})
        return {"access_token": access, "token_type": "Bearer", "id_token": token}

    def _logout(self, handler: BaseHTTPRequestHandler, _: str, asked: dict[str, str]) -> None:
        page = f'<title>Signed out at the provider</title><a href="{asked["post_logout_redirect_uri"]}">Back</a>'
        self._send(handler, 200, page.encode(), "text/html")

    def _json(self, handler: BaseHTTPRequestHandler, status: int, body: Claims) -> None:
        self._send(handler, status, json.dumps(body).encode())

    def _send(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        kind: str = "application/json",
        **headers: str,
    ) -> None:
        handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)
