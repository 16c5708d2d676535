import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from jwt.algorithms import RSAAlgorithm

from asgi_client import asked
from clocks import Clock
from everkept.errors import InvalidInput, Unavailable
from everkept.transports.guard import Guard
from everkept.transports.http import route_by_path
from everkept.transports.oauth import KEY_SECONDS, RETRY_SECONDS, STALE_SECONDS, InvalidToken, OAuthServer, ProviderKeys
from openid_provider import OpenIdProvider, openid_provider
from server_processes import HANG

RESOURCE = "https://memory.example/mcp"
FAR = 10**10


@pytest.fixture(scope="module")
def running() -> Iterator[OpenIdProvider]:
    with openid_provider() as provider:
        yield provider


@pytest.fixture
def provider(running: OpenIdProvider) -> OpenIdProvider:
    running.overrides.clear()
    running.asked.clear()
    return running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def oauth(provider: OpenIdProvider, clock: Clock) -> OAuthServer:
    return OAuthServer(provider.issuer, RESOURCE, RESOURCE, ProviderKeys(provider.issuer, clock))


def _sign(provider: OpenIdProvider, claims: dict[str, Any]) -> str:
    told: dict[str, Any] = {"aud": RESOURCE, **claims}
    return provider.sign(None, None, **told)


def refused(found: str | InvalidToken) -> str:
    assert isinstance(found, InvalidToken)
    return found.reason


async def test_a_token_of_the_provider_names_its_subject(oauth: OAuthServer, provider: OpenIdProvider) -> None:
    assert await oauth.find_subject(provider.sign(aud=RESOURCE)) == "anna-7"
    assert await oauth.find_subject(provider.sign(aud=["https://other.example", RESOURCE], sub="ben")) == "ben"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"nbf": FAR, "exp": FAR + 1}, "not yet valid"),
        ({"aud": "https://other.example/mcp"}, "another server"),
        ({"aud": None}, "aud"),
        ({"iss": "https://other.example"}, "issuer"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "subject"),
    ],
)
async def test_a_token_with_a_wrong_claim_is_not_valid(
    oauth: OAuthServer, provider: OpenIdProvider, claims: Any, reason: str
) -> None:
    assert reason in refused(await oauth.find_subject(_sign(provider, claims)))


async def test_a_token_that_the_provider_did_not_sign_is_not_valid(
    oauth: OAuthServer, provider: OpenIdProvider
) -> None:
    stranger = OpenIdProvider()
    forged = provider.sign(stranger.key, aud=RESOURCE)
    unknown = provider.sign(stranger.key, "another", aud=RESOURCE)
    head, _, signature = provider.sign(aud=RESOURCE).split(".")
    other = base64.urlsafe_b64encode(json.dumps({"aud": RESOURCE, "sub": "root"}).encode()).decode().rstrip("=")
    # Whoever knows the public key could sign with it, if it counted as a secret.
    public = provider.jwks["keys"][0]["n"]
    claims = {"iss": provider.issuer, "aud": RESOURCE, "sub": "root", "exp": FAR}
    as_secret = jwt.encode(claims, public, algorithm="HS256", headers={"kid": provider.key_id})
    unsigned = jwt.encode(claims, "", algorithm="none", headers={"kid": provider.key_id})
    for token in (forged, unknown, f"{head}.{other}.{signature}", as_secret, unsigned, "a.b.c", ".."):
        assert refused(await oauth.find_subject(token))


async def test_keys_are_read_once_an_hour(oauth: OAuthServer, provider: OpenIdProvider, clock: Clock) -> None:
    token = provider.sign(aud=RESOURCE)
    for _ in range(3):
        await oauth.find_subject(token)
    assert provider.asked.count("/jwks") == 1
    clock.now += KEY_SECONDS + 1
    await oauth.find_subject(token)
    assert provider.asked.count("/jwks") == 2


async def test_a_new_key_is_found_and_tokens_of_strangers_ask_nothing(
    oauth: OAuthServer, provider: OpenIdProvider, clock: Clock
) -> None:
    old = provider.sign(aud=RESOURCE)
    assert await oauth.find_subject(old) == "anna-7"
    for number in range(20):
        await oauth.find_subject(provider.sign(key_id=f"made up {number}", aud=RESOURCE))
    assert provider.asked.count("/jwks") == 1
    provider.rotate("second")
    clock.now += RETRY_SECONDS + 1
    assert await oauth.find_subject(provider.sign(aud=RESOURCE)) == "anna-7"
    assert refused(await oauth.find_subject(old))


async def test_keys_last_while_the_provider_does_not_answer(
    oauth: OAuthServer, provider: OpenIdProvider, clock: Clock
) -> None:
    token = provider.sign(aud=RESOURCE)
    assert await oauth.find_subject(token) == "anna-7"
    provider.overrides["/jwks"] = (500, {})
    clock.now += KEY_SECONDS + 1
    assert await oauth.find_subject(token) == "anna-7"


async def test_keys_of_long_ago_do_not_count(oauth: OAuthServer, provider: OpenIdProvider, clock: Clock) -> None:
    token = provider.sign(aud=RESOURCE)
    assert await oauth.find_subject(token) == "anna-7"
    provider.overrides["/jwks"] = (500, {})
    clock.now += STALE_SECONDS + 1
    with pytest.raises(Unavailable):
        await oauth.find_subject(token)


async def test_requests_that_wait_for_a_slow_provider_do_not_ask_it_again(provider: OpenIdProvider) -> None:
    """Each answer takes longer than the pause between two attempts."""
    provider.overrides["/jwks"] = (503, {})
    keys = ProviderKeys(provider.issuer, lambda: len(provider.asked) * (RETRY_SECONDS + 1))
    oauth, token = OAuthServer(provider.issuer, RESOURCE, RESOURCE, keys), provider.sign(aud=RESOURCE)
    found = await asyncio.gather(*(oauth.find_subject(token) for _ in range(5)), return_exceptions=True)
    assert [type(each) for each in found] == [Unavailable] * 5
    assert provider.asked.count("/jwks") == 1


class _Held(dict[str, tuple[int, Any]]):
    """Answers that the provider gives only after `released`."""

    def __init__(self, answers: dict[str, tuple[int, Any]]) -> None:
        super().__init__(answers)
        self.asked, self.released = threading.Event(), threading.Event()

    def __getitem__(self, path: str) -> tuple[int, Any]:
        self.asked.set()
        assert self.released.wait(HANG)
        return super().__getitem__(path)


async def test_a_known_key_does_not_wait_for_a_slow_provider(
    oauth: OAuthServer, provider: OpenIdProvider, clock: Clock
) -> None:
    token = provider.sign(aud=RESOURCE)
    assert await oauth.find_subject(token) == "anna-7"
    clock.now += KEY_SECONDS + 1
    provider.overrides = held = _Held({"/jwks": (200, provider.jwks)})
    try:
        first = asyncio.create_task(oauth.find_subject(token))
        assert await asyncio.to_thread(held.asked.wait, HANG)
        async with asyncio.timeout(HANG):
            assert await oauth.find_subject(token) == "anna-7"
        held.released.set()
        assert await first == "anna-7"
    finally:
        held.released.set()
        provider.overrides = {}


async def test_tokens_for_another_purpose_are_not_valid(oauth: OAuthServer, provider: OpenIdProvider) -> None:
    claims = {"iss": provider.issuer, "aud": RESOURCE, "sub": "anna-7", "exp": FAR}

    def sign(kind: str, **more: Any) -> str:
        headers = {"kid": provider.key_id, "typ": kind}
        return jwt.encode({**claims, **more}, provider.key, algorithm="RS256", headers=headers)

    assert await oauth.find_subject(sign("at+jwt")) == "anna-7"
    assert "not one for access" in refused(await oauth.find_subject(sign("logout+jwt")))
    assert "bound to a key" in refused(await oauth.find_subject(sign("at+jwt", cnf={"jkt": "x"})))


@pytest.mark.parametrize("subject", ["a" * 256, "a\n\x1b[31m", "\ud800", "\u202eroot"])
async def test_a_subject_that_cannot_be_shown_is_not_valid(
    oauth: OAuthServer, provider: OpenIdProvider, subject: str
) -> None:
    assert "subject" in refused(await oauth.find_subject(provider.sign(aud=RESOURCE, sub=subject)))


async def test_malformed_keys_beside_good_ones_are_ignored(provider: OpenIdProvider, clock: Clock) -> None:
    [good] = provider.jwks["keys"]
    wrong: list[Any] = [{"alg": ["RS256"]}, {"alg": {}}, {"alg": "none"}, {"kid": ["a"]}, {"kty": []}, {"n": 5}]
    for change in wrong:
        provider.overrides["/jwks"] = (200, {"keys": [{**good, **change}, good]})
        oauth = OAuthServer(provider.issuer, RESOURCE, RESOURCE, ProviderKeys(provider.issuer, clock))
        assert await oauth.find_subject(provider.sign(aud=RESOURCE)) == "anna-7", change
    private = {**json.loads(RSAAlgorithm.to_jwk(provider.key)), "kid": provider.key_id, "alg": "RS256"}
    provider.overrides["/jwks"] = (200, {"keys": [private]})
    oauth = OAuthServer(provider.issuer, RESOURCE, RESOURCE, ProviderKeys(provider.issuer, clock))
    with pytest.raises(Unavailable, match="no key for signatures"):
        await oauth.find_subject(provider.sign(aud=RESOURCE))


UNUSABLE: list[tuple[str, tuple[int, Any]]] = [
    ("/.well-known/openid-configuration", (200, b"no json")),
    ("/.well-known/openid-configuration", (404, {})),
    ("/jwks", (503, {})),
    ("/jwks", (200, {"keys": []})),
    ("/jwks", (200, [1, 2])),
    ("/jwks", (200, b" " * 1_100_000)),
    ("/jwks", (200, {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "first"}]})),
]


@pytest.mark.parametrize(("path", "answer"), UNUSABLE)
async def test_a_provider_that_cannot_be_used_makes_tokens_uncheckable(
    oauth: OAuthServer, provider: OpenIdProvider, path: str, answer: tuple[int, Any], clock: Clock
) -> None:
    provider.overrides[path] = answer
    for _ in range(3):
        with pytest.raises(Unavailable, match="OpenID provider"):
            await oauth.find_subject(provider.sign(aud=RESOURCE))
    assert provider.asked.count(path) == 1
    provider.overrides.clear()
    clock.now += RETRY_SECONDS + 1
    assert await oauth.find_subject(provider.sign(aud=RESOURCE)) == "anna-7"


async def test_a_provider_cannot_pass_for_another(provider: OpenIdProvider) -> None:
    _, about = provider.answer("/.well-known/openid-configuration", {}, {}, b"")
    for told in ({**about, "issuer": "https://other.example"}, {**about, "jwks_uri": "http://memory.example/jwks"}):
        provider.overrides["/.well-known/openid-configuration"] = (200, told)
        keys = ProviderKeys(provider.issuer)
        with pytest.raises(Unavailable):
            await OAuthServer(provider.issuer, RESOURCE, RESOURCE, keys).find_subject(provider.sign(aud=RESOURCE))


async def test_metadata_of_oauth_is_read_where_openid_has_none(provider: OpenIdProvider, oauth: OAuthServer) -> None:
    about = provider.answer("/.well-known/openid-configuration", {}, {}, b"")
    provider.overrides["/.well-known/openid-configuration"] = (404, {})
    provider.overrides["/.well-known/oauth-authorization-server"] = about
    assert await oauth.find_subject(provider.sign(aud=RESOURCE)) == "anna-7"


@pytest.mark.parametrize(
    ("issuer", "resource"),
    [
        ("http://login.example", RESOURCE),
        ("login.example", RESOURCE),
        ("https://login.example?tenant=1", RESOURCE),
        ("https://login.example", "http://memory.example/mcp"),
        ("https://login.example", "https://user:secret@memory.example/mcp"),
    ],
)
def test_addresses_that_others_could_change_are_refused(issuer: str, resource: str) -> None:
    with pytest.raises(InvalidInput):
        OAuthServer.from_settings(issuer, resource, None)


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        ("https://memory.example/mcp", "/.well-known/oauth-protected-resource/mcp"),
        ("https://memory.example/team/mcp/", "/.well-known/oauth-protected-resource/team/mcp"),
        ("https://memory.example", "/.well-known/oauth-protected-resource"),
    ],
)
async def test_the_metadata_is_open_and_where_clients_look(resource: str, path: str) -> None:
    oauth = OAuthServer.from_settings("https://login.example/realm", resource, None)
    assert oauth.metadata_url == f"https://memory.example{path}"
    routes = oauth.build_routes()
    guard = Guard(route_by_path(next(iter(routes.values())), routes), "0.0.0.0", None, open_paths=routes)
    for place in {path, "/.well-known/oauth-protected-resource"}:
        answer = await asked(guard, place)
        assert answer.status == 200
        assert answer.json["resource"] == resource
        assert answer.json["authorization_servers"] == ["https://login.example/realm"]
