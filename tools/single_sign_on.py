"""Single sign-on with an OpenID provider of other makers, and the official SDK's client."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from inspecting import everkept, server
from mcp.client.auth import OAuthClientProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp.shared.exceptions import MCPError
from node_tools import Failed, Node, install
from pydantic import AnyUrl

REDIRECT = "http://127.0.0.1:9/callback"
START_SECONDS = 30.0
FACT = "The teapot leaks at the handle"

# Registers clients, shows a page to sign in and one to consent, and signs tokens for the resource that a client names.
PROVIDER = """
import {{ Provider }} from {package};
const provider = new Provider({issuer}, {{
  features: {{
    devInteractions: {{ enabled: true }},
    registration: {{ enabled: true }},
    resourceIndicators: {{
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_context, resource) => ({{
        scope: "openid", audience: resource, accessTokenFormat: "jwt", accessTokenTTL: 300,
      }}),
    }},
  }},
}});
provider.listen({port}, "127.0.0.1", () => console.log("ready"));
"""


class Memory:
    """What a client keeps between its starts: nothing."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


def sign_in_at_a_provider(node: Node, scratch: Path) -> str:
    package = (install(node, "oidc-provider") / "lib" / "index.js").as_uri()
    data_dir = scratch / "data"
    port, own_port = _find_port(), _find_port()
    issuer, url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{own_port}/mcp"
    script = scratch / "provider.mjs"
    text = PROVIDER.format(package=json.dumps(package), issuer=json.dumps(issuer), port=port)
    script.write_text(text, encoding="utf-8")
    options = ["--port", str(own_port), "--oauth-issuer", issuer, "--oauth-resource", url]
    with _running([node.program, str(script)], port), server(data_dir, *options):
        refused = asyncio.run(_sign_in(url, "anna-7"))
        if "account link NAME anna-7" not in refused:
            raise Failed(f"a person without an account was not refused: {refused}")
        everkept("account", "link", "anna", "anna-7", "--issuer", issuer, "--data-dir", str(data_dir))
        recalled = asyncio.run(_sign_in(url, "anna-7"))
    if FACT not in recalled:
        raise Failed(f"the memory was not recalled: {recalled[-2000:]}")
    return "signed in, linked, stored and recalled"


async def _sign_in(url: str, login: str) -> str:
    """Store a memory and recall it, and return the answer, or the reason of a refusal."""
    refusals: list[str] = []
    async with _connect(url, login, refusals) as client:
        if client is None:
            return refusals[-1]
        arguments = {"content": FACT, "type": "semantic", "scope": "user"}
        await client.call_tool("store_memory", arguments)
        found = await client.call_tool("recall_memories", {"query": "what leaks"})
    return json.dumps(found.structured_content)


@asynccontextmanager
async def _connect(url: str, login: str, refusals: list[str]) -> AsyncGenerator[Client | None, None]:
    landed: list[str] = []

    async def open_browser(address: str) -> None:
        landed.append(await _walk_pages(address, login))

    async def wait_for_browser() -> AuthorizationCodeResult:
        told = {name: values[0] for name, values in parse_qs(urlsplit(landed[-1]).query).items()}
        if "code" not in told:
            raise Failed(f"the provider sent no code: {landed[-1]}")
        return AuthorizationCodeResult(code=told["code"], state=told.get("state"), iss=told.get("iss"))

    async def note_refusal(answer: httpx2.Response) -> None:
        if answer.status_code == 403:
            refusals.append((await answer.aread()).decode())

    about = OAuthClientMetadata(
        client_name="tools/single_sign_on.py",
        redirect_uris=[AnyUrl(REDIRECT)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    auth = OAuthClientProvider(url, about, Memory(), open_browser, wait_for_browser)
    async with httpx2.AsyncClient(auth=auth, timeout=60, event_hooks={"response": [note_refusal]}) as http:
        client = Client(streamable_http_client(url, http_client=http), mode="legacy")
        try:
            await client.__aenter__()
        except (MCPError, httpx2.HTTPError, ExceptionGroup) as error:
            if not refusals:
                raise Failed(f"the client could not sign in: {error!r}") from error
            yield None
            return
        try:
            yield client
        finally:
            await client.__aexit__(None, None, None)


async def _walk_pages(address: str, login: str) -> str:
    """Sign in and consent on the provider's pages, as a person would. Return where the browser is sent."""
    async with httpx2.AsyncClient(timeout=60) as browser:
        answer = await browser.get(address)
        for _ in range(20):
            if (place := answer.headers.get("location")) is not None:
                address = urljoin(str(answer.url), place)
                if address.startswith(REDIRECT):
                    return address
                answer = await browser.get(address)
                continue
            form = re.search(r'<form[^>]*action="([^"]+)"', answer.text)
            prompt = re.search(r'name="prompt" value="([^"]+)"', answer.text)
            if form is None or prompt is None:
                raise Failed(f"the provider answered {answer.status_code}: {answer.text[-2000:]}")
            told = {"prompt": prompt[1], "login": login, "password": "any"}
            answer = await browser.post(urljoin(str(answer.url), form[1]), data=told)
    raise Failed("the provider's pages have no end")


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def _running(command: list[str], port: int) -> Generator[None, None, None]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise Failed(f"does not start: {' '.join(command)}") from None
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()
