from typing import Any

import pytest

from everkept.families.gateway.model import (
    SINGLE_UPSTREAM,
    PassThrough,
    find_fault,
    find_mapped,
    find_passed,
    select_named,
)
from gateways import gateway_config, listing, tool_config


def test_only_what_has_a_name_can_be_called() -> None:
    assert select_named([listing("a"), {"description": "?"}, {"name": 5}, None, "b"]) == [listing("a")]


def test_tools_with_an_entry_are_known_by_their_names_there() -> None:
    tools = (
        tool_config(tool="notes__search"),
        tool_config("other", tool="read", upstream="web"),
        tool_config("third", tool="gone__away"),
    )
    config = gateway_config(*tools, upstreams={SINGLE_UPSTREAM: None, "web": None})
    assert find_mapped(config, SINGLE_UPSTREAM, ["search", "read"]) == {"search"}


def test_an_upstream_that_passes_nothing_through_offers_nothing() -> None:
    assert list(find_passed(gateway_config(), SINGLE_UPSTREAM, [listing("search")])) == []


def test_what_is_passed_through_keeps_all_but_its_name() -> None:
    theirs = listing("search", title="Search", _meta={"x": 1}, icons=[])
    config = gateway_config(upstreams={SINGLE_UPSTREAM: PassThrough(prefix="notes_")})
    (found,) = find_passed(config, SINGLE_UPSTREAM, [theirs])
    assert (found.ours, found.theirs) == ("notes_search", "search")
    assert found.listing == theirs | {"name": "notes_search"}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"ui": {"resourceUri": "ui://notes/list"}, "ui/resourceUri": "ui://notes/list"}, None),
        ({"ui": {"resourceUri": "ui://notes/list"}, "openai/outputTemplate": "ui://notes/list", "x": 1}, {"x": 1}),
        ({"ui": {"resourceUri": "ui://n", "visibility": ["app"]}}, {"ui": {"visibility": ["app"]}}),
        ({"ui": "ui://notes/list"}, None),
        ({"ui": ["of another kind"]}, {"ui": ["of another kind"]}),
    ],
)
def test_what_is_passed_through_points_at_no_page_that_only_the_upstream_has(
    theirs: dict[str, object], ours: dict[str, object] | None
) -> None:
    config = gateway_config(upstreams={SINGLE_UPSTREAM: PassThrough()})
    (found,) = find_passed(config, SINGLE_UPSTREAM, [listing("search", _meta=theirs)])
    assert found.listing.get("_meta") == ours


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
    assert find_fault(listing("search")) is None
    found = find_fault(listing("search") | fault)
    assert found is not None
    assert found.startswith("its ")
