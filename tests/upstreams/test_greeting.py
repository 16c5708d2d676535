"""The first words, and what servers answer to them."""

from typing import Any

import pytest

from everkept.core.protocol import HANDSHAKE_VERSIONS
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.greeting import Greeting, greet

JSON = dict[str, Any]
TELLS = {"capabilities": {"tools": {"listChanged": True}}}


class Server:
    """Answers by a table; what it lacks it does not know."""

    def __init__(self, **answers: JSON) -> None:
        self.heard: list[tuple[str, JSON]] = []
        self._answers = answers

    async def ask(self, method: str, params: JSON) -> JSON:
        self.heard.append((method, params))
        name = method.rpartition("/")[2]
        if name in self._answers:
            return self._answers[name]
        raise UpstreamError(f"no {name}", upstream="notes", upstream_code=-32601)

    def notify(self, method: str, params: JSON) -> None:
        self.heard.append((method, params))

    async def greeted(self) -> Greeting:
        return await greet("notes", self.ask, self.notify)

    async def refusal(self) -> str:
        with pytest.raises(UpstreamUnavailable) as refused:
            await self.greeted()
        return refused.value.message


@pytest.mark.parametrize("version", ["2024-10-07", *HANDSHAKE_VERSIONS])
async def test_every_version_with_a_handshake_will_do(version: str) -> None:
    server = Server(initialize={"protocolVersion": version, "capabilities": {}})
    assert await server.greeted() == Greeting(is_stateless=False, tells_of_changes=False)
    (hello, params), (thanks, _) = server.heard
    assert (hello, thanks) == ("initialize", "notifications/initialized")
    assert params["protocolVersion"] == HANDSHAKE_VERSIONS[-1]
    assert params["capabilities"] == {}
    assert params["clientInfo"]["name"] == "everkept-gateway"


async def test_one_without_a_handshake_is_asked_in_the_newer_way() -> None:
    server = Server(discover={"supportedVersions": ["2026-07-28"], **TELLS})
    assert await server.greeted() == Greeting(is_stateless=True, tells_of_changes=True)
    _, (method, params) = server.heard
    assert method == "server/discover"
    assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert params["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {}


async def test_one_that_knows_neither_is_refused_by_its_first_words() -> None:
    assert await Server().refusal() == "notes refused to be greeted: no initialize"


@pytest.mark.parametrize("version", ["2099-01-01", None, 7, [], {"a": 1}])
async def test_a_version_that_we_do_not_speak_is_named(version: Any) -> None:
    assert str(version) in await Server(initialize={"protocolVersion": version}).refusal()
    assert "protocol" in await Server(discover={"supportedVersions": version}).refusal()
    assert "protocol" in await Server(discover={"supportedVersions": [version]}).refusal()


@pytest.mark.parametrize(
    "capabilities", [None, [], {}, {"tools": None}, {"tools": {}}, {"tools": {"listChanged": 1}}]
)
async def test_only_a_plain_yes_is_a_promise_to_tell_of_changes(capabilities: Any) -> None:
    answer = {"protocolVersion": "2025-06-18", "capabilities": capabilities}
    assert not (await Server(initialize=answer).greeted()).tells_of_changes
