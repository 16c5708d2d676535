"""An OpenID provider on the loopback address: discovery, registration, sign-in with PKCE, and signed tokens."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm

LIFETIME_SECONDS = 300


class OpenIdProvider:
    """Whoever comes is signed in as `subject`. `overrides` are answers in place of its own, by path."""

    def __init__(self) -> None:
        self.issuer = ""
        self.subject = "anna-7"
        self.overrides: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        self._codes: dict[str, Mapping[str, str]] = {}
        self.rotate("first")

    def rotate(self, key_id: str) -> None:
        """Sign with another key from now on, and publish that alone."""
        self.key_id, self.key = key_id, _generate_key()

    def sign(self, key: RSAPrivateKey | None = None, key_id: str | None = None, **claims: Any) -> str:
        """A token with these claims in place of its own; one that is None is missing."""
        now = int(time.time())
        own = {"iss": self.issuer, "sub": self.subject, "iat": now, "exp": now + LIFETIME_SECONDS}
        told = {name: value for name, value in {**own, **claims}.items() if value is not None}
        return jwt.encode(told, key or self.key, algorithm="RS256", headers={"kid": key_id or self.key_id})

    @property
    def jwks(self) -> dict[str, Any]:
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": self.key_id, "use": "sig", "alg": "RS256"}]}

    def answer(self, path: str, query: Mapping[str, str], form: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        self.asked.append(path)
        if path in self.overrides:
            return self.overrides[path]
        if path == "/.well-known/openid-configuration":
            return 200, self._describe()
        if path == "/jwks":
            return 200, self.jwks
        if path == "/register":
            return 201, {**json.loads(body), "client_id": secrets.token_hex(4)}
        if path == "/authorize":
            code = secrets.token_hex(8)
            self._codes[code] = query
            told = {"code": code, "state": query.get("state", ""), "iss": self.issuer}
            return 302, f"{query['redirect_uri']}?{urlencode(told)}"
        if path == "/token":
            return self._exchange(form)
        return 404, {}

    def _describe(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/jwks",
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _exchange(self, form: Mapping[str, str]) -> tuple[int, Any]:
        asked = self._codes.pop(form.get("code", ""), None)
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).rstrip(b"=").decode()
        if asked is None or asked.get("code_challenge") != challenge:
            return 400, {"error": "invalid_grant"}
        token = self.sign(aud=form.get("resource", asked.get("resource")))
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME_SECONDS}


def _generate_key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=2048)


@contextmanager
def openid_provider() -> Generator[OpenIdProvider]:
    provider = OpenIdProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("content-length", 0))))

        def _answer(self, body: bytes) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            status, told = provider.answer(parts.path, query, form, body)
            self.send_response(status)
            if status == 302:
                self.send_header("location", told)
                told = None
            data = told if isinstance(told, bytes) else json.dumps(told).encode()
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Be silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
