from typing import Any

import pytest

from everkept.families.gateway.model import ONLY, PassThrough, fault_in, mapped_there, named, passed
from gateways import gateway_config, listing, tool_config


def test_only_what_has_a_name_can_be_called() -> None:
    assert named([listing("a"), {"description": "?"}, {"name": 5}, None, "b"]) == [listing("a")]


def test_tools_with_an_entry_are_known_by_their_names_there() -> None:
    tools = (
        tool_config(tool="notes__search"),
        tool_config("other", tool="read", upstream="web"),
        tool_config("third", tool="gone__away"),
    )
    config = gateway_config(*tools, upstreams={ONLY: None, "web": None})
    assert mapped_there(config, ONLY, ["search", "read"]) == {"search"}


def test_an_upstream_that_passes_nothing_through_offers_nothing() -> None:
    assert list(passed(gateway_config(), ONLY, [listing("search")])) == []


def test_what_is_passed_through_keeps_all_but_its_name() -> None:
    theirs = listing("search", title="Search", _meta={"x": 1}, icons=[])
    config = gateway_config(upstreams={ONLY: PassThrough(prefix="notes_")})
    (found,) = passed(config, ONLY, [theirs])
    assert (found.ours, found.theirs) == ("notes_search", "search")
    assert found.listing == theirs | {"name": "notes_search"}


@pytest.mark.parametrize(
    "fault",
    [
        {"name": "two words"},
        {"name": "x" * 129},
        {"inputSchema": None},
        {"inputSchema": {"type": "string"}},
        {"inputSchema": {}},
        {"description": 5},
        {"annotations": []},
        {"outputSchema": "none"},
        {"_meta": None},
    ],
)
def test_a_listing_with_a_fault_says_which(fault: dict[str, Any]) -> None:
    assert fault_in(listing("search")) is None
    found = fault_in(listing("search") | fault)
    assert found is not None
    assert found.startswith("its ")
