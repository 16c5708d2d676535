"""The graph for people to read."""

import pytest

from everkept.families.bank.graph.graph_folder import render_view, summarize_graph
from everkept.families.bank.graph.model import GraphState
from graph_mirror import Mirroring, upserted

VIEW = "graph/graph.md"


async def test_the_view_shows_counts_entities_by_type_and_relations(here: Mirroring) -> None:
    await here.upsert("Shop API", "service", port=8443)
    for number in range(5):
        await here.observe("Shop API", f"note {number}\nsecond line", "service")
    await here.relate("Ada", "uses", "Bob")
    await here.mirror.refresh_view(here.bank)
    text = here.banking.get(VIEW)
    assert "| Entities | 3 |\n| Observations | 5 |\n| Relations | 1 |\n" in text
    assert "### service\n\n- **Shop API**\n  - port: 8443\n  - note 4 second line\n" in text
    assert "  - and 2 more\n" in text
    assert "### uses\n\n- Ada --uses--> Bob\n" in text
    assert text.index("## Recent Activity") < text.index("## Entities") < text.index("## Relations")


async def test_values_are_json_and_names_break_no_line(here: Mirroring) -> None:
    attrs = {"x*": {"b": [1, None, True]}, "tag": "<b>"}
    await here.upsert("a|b `c`", "kind_of\nthing", **attrs)
    await here.mirror.refresh_view(here.bank)
    text = here.banking.get(VIEW)
    assert "### kind_of thing\n\n- **a\\|b \\`c\\`**\n" in text
    assert '  - x\\*: {"b": [1, null, true]}\n  - tag: \\<b>\n' in text
    assert "a|b `c` (kind_of thing)" in (await here.mirror.read_summary(here.bank) or "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# no heading", "\\# no heading"),
        ("#tag", "#tag"),
        ("1. no list", "1\\. no list"),
        ("3.5 ms", "3.5 ms"),
        ("- [ ] ~~no task~~", "\\- [ ] \\~~no task\\~~"),
        ("[ ] no box", "\\[ ] no box"),
        ("see [no](link)", "see [no\\](link)"),
        ("snake_case __init__", "snake_case \\_\\_init\\_\\_"),
        ("a & b &amp; c", "a & b \\&amp; c"),
        ("> no quote\nnext", "\\> no quote next"),
    ],
)
async def test_what_markdown_would_take_for_its_own_is_escaped(here: Mirroring, text: str, line: str) -> None:
    await here.observe("Ada", text)
    await here.mirror.refresh_view(here.bank)
    assert f"- **Ada**\n  - {line}\n" in here.banking.get(VIEW)


async def test_the_view_is_written_only_where_the_graph_changed(here: Mirroring) -> None:
    await here.mirror.refresh_view(here.bank)
    assert not (here.banking.folder / VIEW).exists()
    await here.upsert("Ada")
    await here.mirror.refresh_view(here.bank)
    here.files.done.clear()
    await here.mirror.refresh_view(here.bank)
    assert here.files.done == []
    here.restart()
    await here.mirror.refresh_view(here.bank)
    assert here.files.calls("write") == []
    await here.delete("Ada")
    await here.mirror.refresh_view(here.bank)
    assert "| Entities | 0 |" in here.banking.get(VIEW)


async def test_the_summary_names_what_is_recent_and_what_is_connected(here: Mirroring) -> None:
    assert await here.mirror.read_summary(here.bank) is None
    await here.relate("Ada", "knows", "Bob")
    await here.relate("Ada", "knows", "Cleo")
    await here.observe("Bob", "likes tea")
    text = await here.mirror.read_summary(here.bank)
    assert text is not None
    lines = text.splitlines()
    assert lines[0] == "3 entities, 1 observation, 2 relations."
    assert lines[1].startswith("- Most recent: Bob (thing), ")
    assert lines[2].startswith("- Most connected: Ada (thing) 2, ")
    await here.delete("Ada")
    assert "2 entities, 1 observation, 0 relations." in (await here.mirror.read_summary(here.bank) or "")


async def test_the_first_summary_tells_what_a_log_brought(here: Mirroring) -> None:
    here.append(upserted("Ada", here.clock()))
    before = here.path.read_bytes()
    here.restart(read_only=True)
    assert await here.mirror.read_summary(here.bank) is None
    here.restart()
    assert "Ada (thing)" in (await here.mirror.read_summary(here.bank) or "")
    assert (await here.stored())[0].keys() == {("Ada", "thing")}
    assert here.path.read_bytes() == before


def test_an_empty_graph_has_a_view_and_no_summary() -> None:
    assert summarize_graph(GraphState()) is None
    assert render_view(GraphState(), "shop", 0).startswith("# Knowledge Graph\n\n- **Store:** shop\n")
