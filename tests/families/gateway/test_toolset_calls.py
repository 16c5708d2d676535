import pytest

from everkept.errors import EverkeptError, UpstreamError, UpstreamUnavailable
from everkept.families.gateway.model import ONLY
from everkept.families.gateway.toolset import GatewayTools, NameThere
from gateways import MemoryUpstream, a_call, gateway_config, listing, said, tool_config

PREFIXED = "notes__search"


def started(*names: str) -> MemoryUpstream:
    upstream = MemoryUpstream(ONLY, [listing(name) for name in names])
    upstream.start()
    return upstream


async def test_a_bare_name_is_never_asked_for() -> None:
    upstream = started()
    name = NameThere("search", upstream)
    name.doubt()
    assert await name.get() == "search"
    assert upstream.listings == 0


async def test_a_name_is_asked_for_once() -> None:
    upstream = started("search")
    name = NameThere(PREFIXED, upstream)
    assert [await name.get() for _ in range(3)] == ["search"] * 3
    assert upstream.listings == 1


async def test_a_name_is_asked_for_again_when_the_tools_have_changed() -> None:
    upstream = started("search")
    name = NameThere(PREFIXED, upstream)
    assert await name.get() == "search"
    upstream.change_tools([listing("search"), listing(PREFIXED)])
    assert await name.get() == PREFIXED
    upstream.change_tools([])
    with pytest.raises(UpstreamError):
        await name.get()


async def test_tools_that_change_while_they_are_listed_are_asked_for_again() -> None:
    upstream = MemoryUpstream(ONLY, [listing("search")])  # not connected: that comes with asking
    name = NameThere(PREFIXED, upstream)
    await name.get()
    upstream_listings = upstream.listings
    await name.get()
    await name.get()
    assert (upstream_listings, upstream.listings) == (1, 2)


@pytest.mark.parametrize("failure", ["answer", "error", "gone"])
async def test_a_call_that_failed_has_the_name_asked_for_again(failure: str) -> None:
    def answer(_: object) -> dict[str, object]:
        if failure == "answer":
            return said("no", isError=True)
        if failure == "error":
            raise UpstreamError("no", upstream=ONLY)
        raise UpstreamUnavailable(ONLY, "is gone.")

    upstream = MemoryUpstream(ONLY, [listing("search")], answer)
    upstream.start()
    family = GatewayTools(gateway_config(tool_config(tool=PREFIXED)), {ONLY: upstream})
    (tool,) = family.mapped_tools()
    for _ in range(2):
        try:
            assert (await tool.run(a_call(), {"query": "tea"})).is_error
        except EverkeptError:
            assert failure != "answer"
    assert upstream.listings == 2


async def test_a_server_outlives_the_names_that_stood_in_an_older_file() -> None:
    upstream = started("search")
    NameThere(PREFIXED, upstream)
    upstream.change_tools([listing("find")])
    name = NameThere("notes__find", upstream)
    assert await name.get() == "find"
