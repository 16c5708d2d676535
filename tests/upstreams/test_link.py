"""The first words, and what servers answer to them."""

from typing import Any

import pytest

from everkept.core.mcp import HANDSHAKE_VERSIONS, UpstreamEndpoint, UpstreamProgram, UpstreamSettings
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.link import ServerGreeting, build_mask, fill_variables, greet

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

    async def greeted(self) -> ServerGreeting:
        return await greet("notes", self.ask, self.notify)

    async def refusal(self) -> str:
        with pytest.raises(UpstreamUnavailable) as refused:
            await self.greeted()
        return refused.value.message


@pytest.mark.parametrize("version", ["2024-10-07", *HANDSHAKE_VERSIONS])
async def test_every_version_with_a_handshake_will_do(version: str) -> None:
    server = Server(initialize={"protocolVersion": version, "capabilities": {}})
    assert await server.greeted() == ServerGreeting(is_stateless=False, tells_of_changes=False)
    (hello, params), (thanks, _) = server.heard
    assert (hello, thanks) == ("initialize", "notifications/initialized")
    assert params["protocolVersion"] == HANDSHAKE_VERSIONS[-1]
    assert params["capabilities"] == {}
    assert params["clientInfo"]["name"] == "everkept-gateway"


async def test_one_without_a_handshake_is_asked_in_the_newer_way() -> None:
    server = Server(discover={"supportedVersions": ["2026-07-28"], **TELLS})
    assert await server.greeted() == ServerGreeting(is_stateless=True, tells_of_changes=True)
    _, (method, params) = server.heard
    assert method == "server/discover"
    assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert params["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {}


async def test_one_that_knows_neither_is_refused_by_its_first_words() -> None:
    assert await Server().refusal() == "notes refused the handshake: no initialize"


@pytest.mark.parametrize("version", ["2099-01-01", None, 7, [], {"a": 1}])
async def test_a_version_that_we_do_not_speak_is_named(version: Any) -> None:
    assert str(version) in await Server(initialize={"protocolVersion": version}).refusal()
    assert "protocol" in await Server(discover={"supportedVersions": version}).refusal()
    assert "protocol" in await Server(discover={"supportedVersions": [version]}).refusal()


@pytest.mark.parametrize("capabilities", [None, [], {}, {"tools": None}, {"tools": {}}, {"tools": {"listChanged": 1}}])
async def test_only_a_plain_yes_is_a_promise_to_tell_of_changes(capabilities: Any) -> None:
    answer = {"protocolVersion": "2025-06-18", "capabilities": capabilities}
    assert not (await Server(initialize=answer).greeted()).tells_of_changes


def test_variables_are_replaced_once_and_wherever_they_stand() -> None:
    ours = {"A": "${B}", "B": "$x\\1"}
    values = {"one": "${A}-${B}", "two": "$A {B} ${}", "three": ""}
    assert fill_variables(values, ours, "notes") == {"one": "${B}-$x\\1", "two": "$A {B} ${}", "three": ""}


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(UpstreamUnavailable) as caught:
        fill_variables({"Authorization": "Bearer ${TOKEN}"}, {"OTHER": "x"}, "notes")
    assert "TOKEN" in caught.value.message
    assert caught.value.facts["upstream"] == "notes"
    assert not caught.value.retry_possible


def test_a_variable_that_is_empty_is_set() -> None:
    assert fill_variables({"a": "<${E}>"}, {"E": ""}, "notes") == {"a": "<>"}


@pytest.mark.parametrize(
    "way",
    [
        UpstreamProgram("x", env={"A": "Bearer ${TOKEN}", "B": "${LONGER}-${HOME}-${MISSING}-${SHORT}"}),
        UpstreamEndpoint("http://x", {"A": "Bearer ${TOKEN}", "B": "${LONGER}-${HOME}-${SHORT}"}),
    ],
)
def test_what_was_filled_in_is_hidden_in_what_a_server_says(way: UpstreamProgram | UpstreamEndpoint) -> None:
    ours = {"TOKEN": "s3cret", "LONGER": "s3cret-er", "HOME": "/home/ada", "SHORT": "on"}
    hide = build_mask(UpstreamSettings("notes", way), ours | {"OTHER": "plain words"})
    assert hide("got s3cret and s3cret-er in /home/ada, plain words only") == (
        "got [masked: variable] and [masked: variable] in /home/ada, plain words only"
    )


def test_what_looks_like_a_secret_is_hidden_too() -> None:
    hide = build_mask(UpstreamSettings("notes", UpstreamProgram("x")), {})
    assert "Tr0ub4dor&3xyz" not in hide("login failed: password=Tr0ub4dor&3xyz")
