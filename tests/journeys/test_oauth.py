"""A team signs in at its OpenID provider: the official SDK's client finds the way by itself."""

import asyncio
import json
import socket
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from openid_provider import OpenIdProvider, openid_provider
from server_processes import HANG, INITIALIZE, HttpServer, command, environment, http_server, run
from team_server import call

REDIRECT = "http://127.0.0.1:9/callback"


@dataclass
class Team:
    data_dir: Path
    server: HttpServer
    provider: OpenIdProvider

    def done(self, *arguments: object) -> Any:
        """A command of the owner's, on the server's machine."""
        outcome = run(*arguments, "--json", "--data-dir", self.data_dir)
        assert outcome.returncode == 0, outcome.stderr
        return json.loads(outcome.stdout)

    def link(self, name: str, subject: str) -> None:
        self.done("account", "link", name, subject, "--issuer", self.provider.issuer)

    def greet(self, token: str) -> tuple[int, dict[str, str], Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
        return self.server.exchange(body, {"Authorization": f"Bearer {token}"} if token else {})


@dataclass
class Storage:
    """What a client keeps between its starts."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None
    signed_in: list[str] = field(default_factory=list[str])

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    data_dir = tmp_path_factory.mktemp("team")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    resource = f"http://127.0.0.1:{port}/mcp"
    with openid_provider() as provider:
        options = ("--port", port, "--oauth-issuer", provider.issuer, "--oauth-resource", resource)
        with http_server(data_dir, *options) as server:
            yield Team(data_dir, server, provider)


@asynccontextmanager
async def signed_in(team: Team, storage: Storage) -> AsyncGenerator[Client, None]:
    """A client that knows only the address of the server. Its user's browser follows the redirect."""
    landed: list[str] = []

    async def open_browser(address: str) -> None:
        storage.signed_in.append(address)
        async with httpx2.AsyncClient(timeout=HANG) as browser:
            landed.append((await browser.get(address)).headers["location"])

    async def wait_for_browser() -> AuthorizationCodeResult:
        told = {name: values[0] for name, values in parse_qs(urlsplit(landed[-1]).query).items()}
        return AuthorizationCodeResult(code=told["code"], state=told["state"], iss=told["iss"])

    about = OAuthClientMetadata(
        client_name="test",
        redirect_uris=[AnyUrl(REDIRECT)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    auth = OAuthClientProvider(team.server.url, about, storage, open_browser, wait_for_browser)
    async with (
        asyncio.timeout(HANG),
        httpx2.AsyncClient(auth=auth, timeout=HANG) as http,
        Client(streamable_http_client(team.server.url, http_client=http), mode="legacy") as client,
    ):
        yield client


async def test_a_client_signs_in_and_uses_the_account_of_its_person(team: Team) -> None:
    team.provider.subject = "anna-7"
    team.link("anna", "anna-7")
    storage = Storage()
    async with signed_in(team, storage) as client:
        await call(client, "store_memory", content="Invoices are due on Fridays", type="semantic", scope="user")
    assert len(storage.signed_in) == 1
    assert f"resource={team.server.url.replace(':', '%3A').replace('/', '%2F')}" in storage.signed_in[0]
    async with signed_in(team, storage) as client:
        found = await call(client, "recall_memories", query="when are invoices due")
    assert "Fridays" in json.dumps(found)
    assert len(storage.signed_in) == 1  # the token of before is still valid
    (account,) = [each for each in team.done("account", "list")["accounts"] if each["name"] == "anna"]
    assert account["subjects"] == [{"user": "anna", "issuer": team.provider.issuer, "subject": "anna-7"}]
    lines = team.done("access-log", "--user", "anna")["accesses"]
    assert {"store_memory", "recall_memories"} <= {line["what"] for line in lines}


async def test_two_people_see_only_what_is_theirs(team: Team) -> None:
    for name in ("ben", "carla"):
        team.provider.subject = f"{name}-1"
        team.link(name, f"{name}-1")
        async with signed_in(team, Storage()) as client:
            await call(client, "store_memory", content=f"The code of {name} is secret", type="semantic", scope="user")
            seen = json.dumps(await call(client, "recall_memories", query="secret code"))
        assert [other for other in ("ben", "carla") if f"code of {other}" in seen] == [name]


def test_someone_without_an_account_is_told_what_to_ask_for(team: Team) -> None:
    token = team.provider.sign(sub="dora-3", aud=team.server.url)
    status, headers, answer = team.greet(token)
    assert status == 403
    assert "everkept account link NAME dora-3" in answer["error"]["message"]
    assert "www-authenticate" not in headers  # to sign in again would not help
    team.link("dora", "dora-3")
    assert team.greet(token)[0] == 200
    team.done("account", "unlink", "dora-3", "--issuer", team.provider.issuer)
    assert team.greet(token)[0] == 403


def test_a_refusal_names_where_to_sign_in(team: Team) -> None:
    for token in ("", "wrong", team.provider.sign(sub="anna-7", aud="https://other.example")):
        status, headers, _ = team.greet(token)
        place = urlsplit(team.server.url)
        address = f"http://{place.netloc}/.well-known/oauth-protected-resource/mcp"
        assert (status, f'resource_metadata="{address}"' in headers["www-authenticate"]) == (401, True)
        about = httpx2.get(address).json()
        assert (about["resource"], about["authorization_servers"]) == (team.server.url, [team.provider.issuer])


def test_a_client_is_connected_without_a_token(team: Team, tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    done = subprocess.run(
        command("setup", "cursor", "--url", team.server.url, "--yes", "--data-dir", tmp_path / "data"),
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=environment() | {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)},
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    assert f"Clients sign in at {team.provider.issuer}" in done.stdout
    written = json.loads((tmp_path / ".cursor" / "mcp.json").read_text("utf-8"))
    assert written == {"mcpServers": {"everkept": {"url": team.server.url}}}


def test_tokens_of_the_server_itself_stay_valid(team: Team) -> None:
    assert team.greet(team.done("token", "--user", "erik")["token"])[0] == 200
    assert team.greet(team.done("token")["token"])[0] == 200


def test_a_session_goes_on_with_a_renewed_token(team: Team) -> None:
    team.link("fay", "fay-1")
    first, second = (team.provider.sign(sub="fay-1", aud=team.server.url, jti=each) for each in ("1", "2"))
    session = team.server.open_session(Authorization=f"Bearer {first}")
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert team.server.exchange(body, {**session, "Authorization": f"Bearer {second}"})[0] == 200
    team.link("gil", "gil-1")
    other = team.provider.sign(sub="gil-1", aud=team.server.url)
    assert team.server.exchange(body, {**session, "Authorization": f"Bearer {other}"})[0] == 404


@pytest.mark.parametrize(
    "options",
    [
        ["--oauth-issuer", "https://login.example"],
        ["--oauth-resource", "https://memory.example/mcp"],
        ["--oauth-issuer", "http://login.example", "--oauth-resource", "https://memory.example/mcp"],
        ["--oauth-issuer", "https://login.example", "--oauth-resource", "https://memory.example/mcp", "--no-token"],
    ],
)
def test_half_a_configuration_starts_no_server(tmp_path: Path, options: list[str]) -> None:
    outcome = run("serve", "--transport", "http", "--port", 0, "--data-dir", tmp_path / "data", *options)
    assert outcome.returncode == 2
    assert "oauth" in outcome.stderr.lower()
