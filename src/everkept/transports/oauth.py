"""OAuth: tokens of an outside OpenID provider, checked against its published keys. Needs the extra `oauth`."""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from everkept.accounts.accounts import Accounts, UnknownAccount
from everkept.accounts.subjects import MAX_SUBJECT_CHARACTERS, Subjects
from everkept.core.extras import format_install_hint
from everkept.core.mcp import PROTECTED_RESOURCE_PATH
from everkept.core.sessions import Account
from everkept.errors import InvalidInput, Unavailable
from everkept.transports.guard import FindAccount, is_loopback, is_signed
from everkept.transports.http_exchange import ASGIApp, Message, Receive, Send, restrict_to_get, send_answer
from everkept.transports.rate_limits import SecondsClock

try:
    import jwt
except ImportError as error:
    raise Unavailable(
        "--oauth-issuer needs the package PyJWT, which is not installed.", hint=format_install_hint("oauth")
    ) from error

if TYPE_CHECKING:
    from jwt.types import Options

# Only those with a public key: with any other, the published keys would be enough to sign.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_SECONDS = 60.0  # for clocks that differ
KEY_SECONDS = 3600.0  # after which the keys are fetched again
RETRY_SECONDS = 10.0  # between two fetches because of an unknown key or a failure
FETCH_SECONDS = 10.0
MAX_DOCUMENT_BYTES = 1024 * 1024
STALE_SECONDS = 24 * 3600.0  # for which earlier keys are used while the provider does not answer
# Of a token for access, or of no stated kind. Others prove something else, such as the end of a session.
TOKEN_TYPES = (None, "jwt", "at+jwt", "application/jwt", "application/at+jwt")
_REQUIRED: "Options" = {"require": ["exp", "iss", "aud", "sub"]}

log = logging.getLogger(__name__)


class InvalidToken(UnknownAccount):
    """Result for a token of the provider that is not valid here."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class ProviderKeys:
    """Keys of an OpenID provider, found by discovery and kept for an hour."""

    def __init__(self, issuer: str, clock: SecondsClock = time.monotonic) -> None:
        self._issuer = issuer
        self._clock = clock
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._problem: Unavailable | None = None
        self._fetching = asyncio.Lock()

    async def find_key(self, key_id: str | None) -> "jwt.PyJWK | None":
        """Return the key, or None if the provider has no such key. Raise Unavailable if it does not answer."""
        # A known key does not wait for a slow provider while another request asks it.
        if self._is_fetch_due(key_id) and not (self._fetching.locked() and key_id in self._keys):
            async with self._fetching:
                if self._is_fetch_due(key_id):
                    await self._refresh()
        if self._fetched_at is not None and self._clock() - self._fetched_at > STALE_SECONDS:
            self._keys = {}  # one of them may have been revoked since
        if self._problem is not None and not self._keys:
            raise self._problem
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _is_fetch_due(self, key_id: str | None) -> bool:
        now = self._clock()
        if self._tried_at is not None and now - self._tried_at < RETRY_SECONDS:
            return False  # otherwise anyone could make this server ask the provider all the time
        is_old = self._fetched_at is None or now - self._fetched_at >= KEY_SECONDS
        return is_old or (key_id is not None and key_id not in self._keys)

    async def _refresh(self) -> None:
        began = self._clock()
        try:
            self._keys = await self._fetch()
        except Unavailable as error:
            self._problem = error
            if self._keys:
                log.warning("earlier keys are used: %s", error)
        else:
            self._fetched_at, self._problem = began, None
        finally:
            self._tried_at = self._clock()  # the end, otherwise each waiting request would ask a slow provider again

    async def _fetch(self) -> "dict[str | None, jwt.PyJWK]":
        about = await self._discover()
        address = about.get("jwks_uri")
        if not isinstance(address, str) or not _is_safe(address.partition("?")[0]):
            raise self._build_error("names no safe address of its keys")
        listed = (await self._read(address)).get("keys")
        found: dict[str | None, jwt.PyJWK] = {}
        for entry in cast(list[Any], listed) if isinstance(listed, list) else []:
            # A provider may publish keys for other purposes, or of kinds that are unknown here.
            if isinstance(entry, dict) and cast(dict[str, Any], entry).get("use", "sig") == "sig":
                key = _parse_key(cast(dict[str, Any], entry))
                if key is not None:
                    found[key.key_id] = key
        if not found:
            raise self._build_error("publishes no key for signatures")
        return found

    async def _discover(self) -> Mapping[str, Any]:
        """Return the metadata, as OpenID Connect or OAuth publishes it."""
        parts = urlsplit(self._issuer)
        root, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        places = [
            f"{root}{path}/.well-known/openid-configuration",
            f"{root}/.well-known/oauth-authorization-server{path}",
        ]
        for place in places:
            about = await self._read(place, is_optional=place != places[-1])
            if about:
                # Otherwise one provider could pass for another.
                if about.get("issuer") != self._issuer:
                    raise self._build_error(f"calls itself {about.get('issuer')!r}")
                return about
        raise self._build_error("publishes no metadata")

    async def _read(self, address: str, *, is_optional: bool = False) -> Mapping[str, Any]:
        import httpx2  # only once an hour

        try:
            async with (
                asyncio.timeout(FETCH_SECONDS),
                httpx2.AsyncClient(timeout=FETCH_SECONDS) as http,
                http.stream("GET", address, headers={"Accept": "application/json"}) as answer,
            ):
                if answer.status_code != 200:
                    if is_optional:
                        return {}
                    raise self._build_error(f"answered {answer.status_code} at {address}")
                body = bytearray()
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > MAX_DOCUMENT_BYTES:
                        raise self._build_error(f"sent more than {MAX_DOCUMENT_BYTES / 1e6:.0f} MB from {address}")
            value: object = json.loads(body)
        except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._build_error(f"does not answer at {address} ({type(error).__name__})") from error
        except (ValueError, RecursionError) as error:
            raise self._build_error(f"sent no JSON from {address}") from error
        return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}

    def _build_error(self, what: str) -> Unavailable:
        return Unavailable(f"The OpenID provider {self._issuer} {what}.", hint="Check --oauth-issuer, then try again.")


class OAuthServer:
    """Our part of OAuth, the protected resource: its metadata, and the accounts of tokens."""

    def __init__(self, issuer: str, resource: str, audience: str, keys: ProviderKeys) -> None:
        self._issuer = issuer
        self._resource = resource
        self._audience = audience
        self._keys = keys

    @classmethod
    def from_settings(cls, issuer: str, resource: str, audience: str | None) -> "OAuthServer":
        """Check the addresses. Raise InvalidInput for one that others on the network could read or change."""
        for name, address in (("oauth_issuer", issuer), ("oauth_resource", resource)):
            if not _is_safe(address):
                raise InvalidInput(
                    f'`{name}` is "{address}"; it must be an address with https.',
                    hint="Without a query or fragment. On this machine, http is allowed.",
                    argument=name,
                    value=address,
                )
        return cls(issuer, resource, audience or resource, ProviderKeys(issuer))

    @property
    def metadata_url(self) -> str:
        parts = urlsplit(self._resource)
        return f"{parts.scheme}://{parts.netloc}{PROTECTED_RESOURCE_PATH}{parts.path.rstrip('/')}"

    def build_routes(self) -> dict[str, ASGIApp]:
        """Return the metadata at the address that clients derive, and at the root of the server."""
        answer = restrict_to_get(self._answer)
        return {PROTECTED_RESOURCE_PATH: answer, urlsplit(self.metadata_url).path: answer}

    def build_admission(self, accounts: Accounts, subjects: Subjects) -> FindAccount:
        """Return the function that finds the account of any token: of the provider, or of `everkept token`."""

        async def admit(secret: str) -> Account | UnknownAccount | None:
            if not is_signed(secret):
                return await accounts.authenticate(secret)
            subject = await self.find_subject(secret)
            return subject if isinstance(subject, InvalidToken) else await subjects.find_account(self._issuer, subject)

        return admit

    async def find_subject(self, token: str) -> str | InvalidToken:
        """Return the subject of a valid token. Raise Unavailable if the provider's keys are unknown."""
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return InvalidToken("This token cannot be read.")
        if header.get("alg") not in ALGORITHMS:
            return InvalidToken("This token has a signature of an unknown kind.")
        kind: object = header.get("typ")
        if (kind.lower() if isinstance(kind, str) else kind) not in TOKEN_TYPES:
            return InvalidToken("This token is not one for access.")
        key = await self._keys.find_key(header.get("kid"))
        if key is None:
            return InvalidToken(f"This token was not signed by {self._issuer}.")
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options=_REQUIRED,
            )
        except jwt.ExpiredSignatureError:
            return InvalidToken("This token has expired.")
        except jwt.InvalidAudienceError:
            return InvalidToken(f"This token is for another server than {self._audience}.")
        except jwt.PyJWTError as error:
            return InvalidToken(f"This token is not valid: {error}.")
        if "cnf" in claims:
            return InvalidToken("This token is bound to a key, which this server cannot check.")
        subject: object = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARACTERS or not subject.isprintable():
            return InvalidToken("This token names no subject.")
        return subject

    async def _answer(self, _scope: Message, _receive: Receive, send: Send) -> None:
        about = {
            "resource": self._resource,
            "authorization_servers": [self._issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Everkept",
        }
        await send_answer(send, 200, json.dumps(about).encode())


def _parse_key(entry: dict[str, Any]) -> "jwt.PyJWK | None":
    """Return a key for signatures, or None if it has another purpose, or is of a kind that is unknown here."""
    try:
        key = jwt.PyJWK(entry)
        # A private key, published by mistake, cannot check a signature.
        is_usable = key.algorithm_name in ALGORITHMS and isinstance(entry.get("kid"), str | None) and "d" not in entry
    except (jwt.PyJWTError, TypeError, ValueError, NotImplementedError):
        return None
    return key if is_usable else None


def _is_safe(address: str) -> bool:
    """Return whether others on the network cannot read or change what this address sends."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        return False
    if not host or parts.query or parts.fragment or parts.username is not None or not address.isprintable():
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
