"""What every file store tells of symbolic links."""

from file_stores import Filing


async def test_a_link_tells_where_it_leads(files: Filing) -> None:
    files.put("graph/graph.jsonl", b"{}")
    files.put("plain.md", b"plain")
    (files.folder / "direct.md").symlink_to("graph/graph.jsonl")
    (files.folder / "again.md").symlink_to("direct.md")
    (files.folder / "other").symlink_to("graph")
    (files.folder / "beside.md").symlink_to("plain.md")
    told = {info.path: info.target for info in await files.store.list()}
    assert told == {
        "again.md": "graph/graph.jsonl",
        "beside.md": "plain.md",
        "direct.md": "graph/graph.jsonl",
        "graph": None,
        "other": "graph",
        "plain.md": None,
    }
    for path, target in [*told.items(), ("other/graph.jsonl", "graph/graph.jsonl")]:
        found = await files.store.read_info(path)
        assert found is not None
        assert found.target == target
    own = await files.store.read_info()
    assert own is not None
    assert own.target is None
