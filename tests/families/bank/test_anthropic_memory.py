"""The tool `memory`, as a server with `--dialect anthropic-memory` offers it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, ReadOnly, Refused
from everkept.settings import read_settings


class Model:
    """Calls the tool like a model, and looks at the files like a person."""

    def __init__(self, app: App, folder: Path) -> None:
        self.app = app
        self.folder = folder / "memory-bank" / "memories"
        self._session = Session(client="test")

    async def __call__(self, command: str, **arguments: Any) -> str:
        return (await self.app.call(self._session, "memory", {"command": command, **arguments})).text

    def put(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())

    def get(self, name: str) -> str:
        return (self.folder / name).read_bytes().decode()

    def names(self) -> list[str]:
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[Model]:
    app = build_app(tmp_path)
    yield Model(app, tmp_path / "shop")
    await app.close()


def build_app(tmp_path: Path, **flags: object) -> App:
    folder = tmp_path / "shop"
    folder.mkdir(exist_ok=True)
    chosen = {"data_dir": tmp_path / "data", "dialect": "anthropic-memory", "path": folder, **flags}
    return App(read_settings(chosen, {}))


async def test_the_tool_is_the_only_one(model: Model) -> None:
    assert [tool.name for tool in model.app.tools] == ["memory"]
    assert model.app.tools.get("memory").input_schema["required"] == ["command"]
    assert "/memories" in model.app.instructions


async def test_files_are_created_edited_and_read_by_people(model: Model) -> None:
    created = await model("create", path="/memories/notes/shop.md", file_text="one\ntwo\nthree\nfour\nfive\n")
    assert created == "File created successfully at: /memories/notes/shop.md"
    edited = await model("str_replace", path="/memories/notes/shop.md", old_str="four", new_str="4")
    assert edited == (
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
        "     2\ttwo\n     3\tthree\n     4\t4\n     5\tfive\n     6\t"
    )
    inserted = await model("insert", path="/memories/notes/shop.md", insert_line=0, insert_text="zero\n")
    assert inserted == "The file /memories/notes/shop.md has been edited."
    assert model.get("notes/shop.md") == "zero\none\ntwo\nthree\n4\nfive\n"
    model.put("notes/shop.md", "by hand\r\n")
    assert await model("view", path="/memories/notes/shop.md") == (
        "Here's the content of /memories/notes/shop.md with line numbers:\n     1\tby hand\r\n     2\t"
    )
    assert await model("rename", old_path="/memories/notes/shop.md", new_path="/memories/a/b.md") == (
        "Successfully renamed /memories/notes/shop.md to /memories/a/b.md"
    )
    assert model.names() == ["a/b.md"]
    assert await model("delete", path="/memories/a") == "Successfully deleted /memories/a"
    assert model.names() == []


async def test_a_range_of_lines_is_shown(model: Model) -> None:
    model.put("x.md", "1\n2\n3\n4")
    for view_range, numbers in (([2, 3], "23"), ([3, -1], "34"), ([0, 1], "1"), ([9, 10], ""), ([3, 2], "")):
        text = await model("view", path="/memories/x.md", view_range=view_range)
        assert text.splitlines()[1:] == [f"     {number}\t{number}" for number in numbers]


async def test_a_folder_is_listed_two_levels_deep_with_sizes(model: Model) -> None:
    assert await model("view", path="/memories") == (
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:\n0B\t/memories"
    )
    for name, size in (("a.md", 8), ("b/c.xml", 1536), ("b/d/deep.txt", 4096), (".hidden", 9), ("b/.git/x", 9)):
        model.put(name, "x" * size)
    listed = (await model("view", path="/memories")).splitlines()[1:]
    assert listed == [
        "5.5K\t/memories",
        "8B\t/memories/a.md",
        "5.5K\t/memories/b/",
        "1.5K\t/memories/b/c.xml",
        "4K\t/memories/b/d/",
    ]
    assert (await model("view", path="/memories/b")).splitlines()[-1] == "4K\t/memories/b/d/deep.txt"


@pytest.mark.parametrize(
    ("command", "arguments", "error", "message"),
    [
        ("view", {"path": "/memories/no"}, NotFound, "does not exist. Please provide a valid path."),
        ("create", {"path": "/memories/x.md", "file_text": ""}, Conflict, "File /memories/x.md already exists"),
        ("create", {"path": "/memories", "file_text": ""}, Conflict, "File /memories already exists"),
        ("create", {"path": "/memories/x.md/y", "file_text": ""}, Conflict, "x.md"),
        ("create", {"path": "/memories/con.md", "file_text": ""}, Refused, "Windows"),
        ("create", {"path": "/memories/y.md", "file_text": "a\0"}, InvalidInput, "U+0000"),
        (
            "str_replace",
            {"path": "/memories/x.md", "old_str": "no", "new_str": "y"},
            InvalidInput,
            "No replacement was performed, old_str `no` did not appear verbatim in /memories/x.md.",
        ),
        (
            "str_replace",
            {"path": "/memories/x.md", "old_str": "a", "new_str": "y"},
            InvalidInput,
            "No replacement was performed. Multiple occurrences of old_str `a` in lines: 1, 3. "
            "Please ensure it is unique",
        ),
        ("str_replace", {"path": "/memories/d", "old_str": "a"}, InvalidInput, "The path /memories/d is not a file."),
        (
            "insert",
            {"path": "/memories/x.md", "insert_line": 4, "insert_text": "x"},
            InvalidInput,
            "Invalid `insert_line` parameter: 4. It should be within the range [0, 3].",
        ),
        ("insert", {"path": "/memories/x.md", "insert_line": 1}, InvalidInput, "`insert` needs `insert_text`."),
        ("delete", {"path": "/memories"}, Refused, "Cannot delete the /memories directory itself"),
        ("delete", {"path": "/memories/no"}, NotFound, "The path /memories/no does not exist"),
        ("rename", {"old_path": "/memories/no", "new_path": "/memories/z"}, NotFound, "/memories/no does not exist"),
        (
            "rename",
            {"old_path": "/memories/d", "new_path": "/memories/x.md"},
            Conflict,
            "The destination /memories/x.md already exists",
        ),
        ("rename", {"old_path": "/memories/d", "new_path": "/memories/d/e"}, InvalidInput, "into itself"),
        ("rename", {"old_path": "/memories", "new_path": "/memories/e"}, Refused, "Cannot rename the /memories"),
        ("view", {"path": "/etc/passwd"}, InvalidInput, "Path must start with /memories, got: /etc/passwd"),
        ("view", {"path": "/memoriesx"}, InvalidInput, "Path must start with /memories"),
        (
            "view",
            {"path": "/memories/../progress.md"},
            InvalidInput,
            "Path /memories/../progress.md would escape /memories directory",
        ),
        ("view", {"path": "/memories/a\\..\\b"}, Refused, "it holds"),
    ],
    ids=str,
)
async def test_a_wrong_command_is_refused_and_changes_nothing(
    model: Model, command: str, arguments: dict[str, Any], error: type[EverkeptError], message: str
) -> None:
    model.put("x.md", "a\nb\na\n")
    model.put("d/y.md", "y")
    with pytest.raises(error) as caught:
        await model(command, **arguments)
    assert message in str(caught.value)
    assert model.names() == ["d/y.md", "x.md"]
    assert model.get("x.md") == "a\nb\na\n"


async def test_a_link_out_of_the_bank_is_not_followed(model: Model, tmp_path: Path) -> None:
    model.put("x.md", "x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.md").write_text("secret", encoding="utf-8")
    (model.folder / "out").symlink_to(tmp_path / "outside")
    with pytest.raises(Refused):
        await model("view", path="/memories/out/secret.md")
    assert "out" not in await model("view", path="/memories")


async def test_a_read_only_server_only_shows_files(tmp_path: Path) -> None:
    app = build_app(tmp_path, read_only=True)
    model = Model(app, tmp_path / "shop")
    model.put("x.md", "x")
    assert [tool.name for tool in app.tools] == ["memory"]
    assert "x.md" in await model("view", path="/memories")
    for command, arguments in (
        ("create", {"path": "/memories/y.md", "file_text": ""}),
        ("delete", {"path": "/memories/x.md"}),
    ):
        with pytest.raises(ReadOnly):
            await model(command, **arguments)
    assert model.names() == ["x.md"]
    await app.close()
