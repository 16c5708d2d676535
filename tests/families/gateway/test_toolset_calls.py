import pytest

from everkept.errors import EverkeptError, UpstreamError, UpstreamUnavailable
from everkept.families.gateway.model import SINGLE_UPSTREAM
from everkept.families.gateway.toolset import GatewayTools, UpstreamToolName
from gateways import MemoryUpstream, a_call, gateway_config, listing, said, tool_config

PREFIXED = "notes__search"


def started(*names: str) -> MemoryUpstream:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [listing(name) for name in names])
    upstream.start()
    return upstream


async def test_a_bare_name_is_never_asked_for() -> None:
    upstream = started()
    name = UpstreamToolName("search", upstream)
    name.invalidate()
    assert await name.resolve() == "search"
    assert upstream.listings == 0


async def test_a_name_is_asked_for_once() -> None:
    upstream = started("search")
    name = UpstreamToolName(PREFIXED, upstream)
    assert [await name.resolve() for _ in range(3)] == ["search"] * 3
    assert upstream.listings == 1


async def test_a_name_is_asked_for_again_when_the_tools_have_changed() -> None:
    upstream = started("search")
    name = UpstreamToolName(PREFIXED, upstream)
    assert await name.resolve() == "search"
    upstream.change_tools([listing("search"), listing(PREFIXED)])
    assert await name.resolve() == PREFIXED
    upstream.change_tools([])
    with pytest.raises(UpstreamError):
        await name.resolve()


async def test_tools_that_change_while_they_are_listed_are_asked_for_again() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [listing("search")])  # not connected: that comes with asking
    name = UpstreamToolName(PREFIXED, upstream)
    await name.resolve()
    upstream_listings = upstream.listings
    await name.resolve()
    await name.resolve()
    assert (upstream_listings, upstream.listings) == (1, 2)


@pytest.mark.parametrize("failure", ["answer", "error", "gone"])
async def test_a_call_that_failed_has_the_name_asked_for_again(failure: str) -> None:
    def answer(_: object) -> dict[str, object]:
        if failure == "answer":
            return said("no", isError=True)
        if failure == "error":
            raise UpstreamError("no", upstream=SINGLE_UPSTREAM)
        raise UpstreamUnavailable(SINGLE_UPSTREAM, "is gone.")

    upstream = MemoryUpstream(SINGLE_UPSTREAM, [listing("search")], answer)
    upstream.start()
    family = GatewayTools(gateway_config(tool_config(tool=PREFIXED)), {SINGLE_UPSTREAM: upstream})
    (tool,) = family.list_mapped_tools()
    for _ in range(2):
        try:
            assert (await tool.run(a_call(), {"query": "tea"})).is_error
        except EverkeptError:
            assert failure != "answer"
    assert upstream.listings == 2


async def test_a_server_outlives_the_names_that_stood_in_an_older_file() -> None:
    upstream = started("search")
    UpstreamToolName(PREFIXED, upstream)
    upstream.change_tools([listing("find")])
    name = UpstreamToolName("notes__find", upstream)
    assert await name.resolve() == "find"
