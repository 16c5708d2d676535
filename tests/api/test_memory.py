"""The Python API: `from everkept import Memory, AsyncMemory`."""

import asyncio
import copy
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from everkept import (
    AsyncMemory,
    Conflict,
    DocumentWrite,
    InvalidInput,
    Memory,
    NotFound,
    Refused,
    Related,
    Relation,
    Said,
)

TEXT = "Orders are stored in PostgreSQL"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory.open(project="shop", data_dir=tmp_path / "data", embedding_model="none") as opened:
        yield opened


def open_again(tmp_path: Path, project: str = "shop") -> Memory:
    return Memory.open(project=project, data_dir=tmp_path / "data", embedding_model="none")


def test_a_memory_keeps_everything_that_was_said_about_it(memory: Memory) -> None:
    when = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
    stored = memory.remember(
        TEXT,
        type="procedural",
        importance=0.8,
        tags=["decision", "db"],
        about=["Orders DB", Related("Ada", "person", "said by")],
        author="Ada",
        occurred_at=when,
        source_tool="notebook",
        source_file="notes/orders.md",
        metadata={"ticket": 42},
        pinned=True,
    )
    (hit,) = memory.recall("orders")
    assert (hit.id, hit.text, hit.type, hit.scope, hit.importance) == (stored.id, TEXT, "procedural", "project", 0.8)
    assert (hit.tags, hit.author, hit.occurred_at, hit.pinned) == (("decision", "db"), "Ada", when, True)
    assert hit.source == {"tool": "notebook", "file": "notes/orders.md"}
    assert hit.metadata == {"ticket": 42}
    assert {(each.name, each.relationship) for each in hit.related} == {("Orders DB", "about"), ("Ada", "said by")}
    assert 0 < hit.score <= 1
    assert sum(hit.why.values()) == pytest.approx(hit.score, abs=0.001)
    assert memory.get(stored.id).metadata == {"ticket": 42}


def test_the_same_text_adds_to_the_memory_that_has_it(memory: Memory) -> None:
    first = memory.remember(TEXT, metadata={"ticket": 42})
    second = memory.remember(TEXT, tags=["db"], metadata={"ticket": 43, "team": "shop"})
    assert (second.id, second.existed, first.existed) == (first.id, True, False)
    assert memory.get(first.id).metadata == {"ticket": 42, "team": "shop"}
    assert any("metadata" in warning for warning in second.warnings)


def test_secrets_in_metadata_are_masked(memory: Memory) -> None:
    stored = memory.remember(TEXT, metadata={"key": "AKIA" + "IOSFODNN7EXAMPLF"})
    assert "IOSFODNN7" not in json.dumps(dict(memory.get(stored.id).metadata))


def test_a_memory_can_be_corrected_forgotten_and_brought_back(memory: Memory) -> None:
    stored = memory.remember(TEXT, tags=["db", "old"])
    edited = memory.edit(stored.id, TEXT + " 17", add_tags=["new"], remove_tags=["old"], metadata={"a": 1})
    assert (edited.text, edited.tags, edited.metadata) == (TEXT + " 17", ("db", "new"), {"a": 1})
    memory.forget(stored.id, "wrong")
    with pytest.raises(NotFound):
        memory.get(stored.id)
    undone = memory.undo()
    assert (undone.tool, undone.client, undone.undone) == ("forget_memory", "python", True)
    assert memory.get(stored.id).text == TEXT + " 17"
    changes = {change.tool: change for change in memory.changes()}
    assert {tool for tool, change in changes.items() if change.undone} == {"forget_memory"}
    assert memory.undo(changes["update_memory"].reference).tool == "update_memory"
    assert memory.get(stored.id).text == TEXT


def test_filters_of_recall_reach_the_search(memory: Memory) -> None:
    memory.remember("The shop opens at nine", tags=["hours"], occurred_at="2026-01-02T00:00:00Z")
    memory.remember("The shop closes at six", type="procedural", scope="user")
    assert [hit.text for hit in memory.recall("shop", tags=["hours"])] == ["The shop opens at nine"]
    assert [hit.text for hit in memory.recall("shop", scopes=["user"])] == ["The shop closes at six"]
    assert [hit.text for hit in memory.recall("shop", types=["procedural"])] == ["The shop closes at six"]
    before = memory.recall("shop", until=datetime(2026, 1, 3, tzinfo=UTC))
    assert [hit.text for hit in before] == ["The shop opens at nine"]
    assert len(memory.recall("shop", limit=1)) == 1
    assert memory.recall("shop", limit=1).total == 2


def test_the_graph_is_read_walked_and_mended(memory: Memory) -> None:
    graph = memory.graph
    entity = graph.add("Shop API", "service", ["listens on 8443"])
    assert (entity.name, entity.type, entity.observations) == ("Shop API", "service", ("listens on 8443",))
    graph.add("Orders DB", "database")
    assert graph.observe("Shop API", "listens on 8443", "is written in Python") == 1
    assert graph.relate("Shop API", "depends_on", "Orders DB")
    assert not graph.relate("Shop API", "depends_on", "Orders DB")
    relation = Relation("Shop API", "depends_on", "Orders DB")
    assert graph.search("8443")[0].relations == (relation,)
    assert {each.name: each.relations for each in graph.walk("Orders DB").entities}["Orders DB"] == (relation,)
    page = graph.read(limit=1)
    assert len(page.entities) == 1
    assert page.cursor is not None
    assert graph.read(cursor=page.cursor).cursor is None
    assert graph.unobserve("Shop API", "listens on 8443") == 1
    assert graph.unrelate("Shop API", "depends_on", "Orders DB")
    assert graph.delete("Shop API") == 1
    assert graph.open(["Shop API"]) == []


def test_turns_of_a_conversation_are_added_once_and_found(memory: Memory) -> None:
    conversations = memory.conversations
    question = Said("user", "How do we debounce the search box?", datetime(2026, 1, 2, tzinfo=UTC), key="1")
    answer = Said("assistant", "With a timer:\n\n```python\ndef debounce(): ...\n```", key="2")
    added = conversations.add("chat-42", [question, answer], title="Search box")
    assert added.added == 2
    assert conversations.add("chat-42", [question, answer]).added == 0
    assert conversations.add("chat-42", [Said("user", "And on paste?")]).added == 1
    page = conversations.read("chat-42")
    assert (page.title, page.total, page.id) == ("Search box", 3, added.conversation)
    assert [turn.author for turn in page.turns] == ["user", "assistant", "user"]
    assert page.turns[0].at == question.at
    assert conversations.recall("debounce")[0].title == "Search box"
    assert conversations.recall_code("debounce")[0].language == "python"


def test_documents_are_kept_searched_and_deleted(memory: Memory) -> None:
    documents = memory.documents
    documents.put(("users", "ada"), "food", {"likes": "pizza", "age": 36})
    documents.write([DocumentWrite(("users", "bob"), "food", {"likes": "soup", "age": 17})])
    found = documents.get(("users", "ada"), "food")
    assert found is not None
    assert (found.namespace, found.key, found.value) == (("users", "ada"), "food", {"likes": "pizza", "age": 36})
    assert found.created_at == found.updated_at
    assert found.created_at.tzinfo is not None
    assert [each.value["likes"] for each in documents.search(("users",), "soup")] == ["soup"]
    assert [each.key for each in documents.search(filter={"age": {"$gte": 18}})] == ["food"]
    assert documents.namespaces() == [("users", "ada"), ("users", "bob")]
    assert documents.delete(("users", "bob"), "food")
    assert documents.get_all([(("users", "bob"), "food"), (("users", "ada"), "food")]) == [None, found]
    documents.put(("users", "eve"), "food", {}, ttl=1e-9)
    assert documents.expire() == 1


def test_files_of_a_model_are_in_the_bank_of_the_folder(tmp_path: Path) -> None:
    with Memory.open(project="shop", folder=tmp_path, data_dir=tmp_path / "data", embedding_model="none") as memory:
        files = memory.files
        assert files.create("/memories/a/x.md", "one\n") == "File created successfully at: /memories/a/x.md"
        assert (tmp_path / "memory-bank" / "memories" / "a" / "x.md").read_bytes() == b"one\n"
        files.insert("/memories/a/x.md", 1, "two")
        files.str_replace("/memories/a/x.md", "one", "1")
        files.rename("/memories/a/x.md", "/memories/y.md")
        assert files.view("/memories/y.md", [1, 2]).splitlines()[1:] == ["     1\t1", "     2\ttwo"]
        with pytest.raises(Conflict, match="already exists"):
            files.create("/memories/y.md", "")
        files.delete("/memories/a")
        assert "y.md" in files.view()
        assert files.clear() == "All memory cleared"
        assert "y.md" not in files.view()


def test_a_project_that_is_off_keeps_no_turns(memory: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    with Memory.open(data_dir=tmp_path / "data", folder=folder, history_exclude=str(folder)) as elsewhere:
        added = elsewhere.conversations.add("chat-1", [Said("user", "Do not keep this")])
    assert (added.added, added.left_out) == (0, 1)


@pytest.mark.parametrize("turn", [Said("robot", "Hello"), Said("user", "  ")], ids=["author", "text"])
def test_a_turn_that_makes_no_sense_is_refused_and_nothing_is_added(memory: Memory, turn: Said) -> None:
    with pytest.raises(InvalidInput):
        memory.conversations.add("chat-42", [Said("user", "Hello"), turn])
    with pytest.raises(NotFound):
        memory.conversations.read("chat-42")


def test_projects_are_created_archived_restored_and_deleted(memory: Memory, tmp_path: Path) -> None:
    memory.remember(TEXT)
    assert memory.projects.create("website", "The public site").description == "The public site"
    memory.remember("This stays in the shop")
    assert [project.name for project in memory.projects.list()] == ["shop", "website"]
    memory.projects.archive("website")
    assert [project.name for project in memory.projects.list()] == ["shop"]
    assert [project.status for project in memory.projects.list(archived=True)] == ["active", "archived"]
    assert memory.projects.restore("website").status == "active"
    with open_again(tmp_path, "website") as other:
        assert len(other.recall("shop orders")) == 0
    memory.projects.delete("website")
    assert [project.name for project in memory.projects.list()] == ["shop"]


def test_without_a_name_the_project_of_the_folder_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "shop-api"
    (folder / ".git").mkdir(parents=True)
    with Memory.open(data_dir=tmp_path / "data", folder=folder, embedding_model="none") as memory:
        memory.remember(TEXT)
        assert [project.name for project in memory.projects.list()] == ["shop-api"]


def test_a_wrong_argument_says_what_is_wrong_and_stores_nothing(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="importance"):
        memory.remember(TEXT, importance=7)
    with pytest.raises(InvalidInput):
        memory.remember("")
    assert memory.changes() == []


def test_one_text_in_the_place_of_a_list_is_refused_and_stores_nothing(memory: Memory) -> None:
    """Python takes a text for the list of its characters."""
    stored = memory.remember(TEXT)
    for wrong in (
        lambda: memory.remember("Mails go out at night", tags="decision"),
        lambda: memory.remember("Mails go out at night", about="Orders DB"),
        lambda: memory.recall("orders", types="semantic"),  # type: ignore[arg-type]
        lambda: memory.edit(stored.id, add_tags="decision"),
        lambda: memory.context("orders", files="orders.py"),
        lambda: memory.graph.add("Orders DB", "database", "PostgreSQL 17"),
        lambda: memory.graph.open("Orders DB"),
    ):
        with pytest.raises(InvalidInput, match="must be a list"):
            wrong()
    assert [hit.tags for hit in memory.recall("orders")] == [()]
    assert memory.recall("mails").total == 0
    assert memory.graph.read().entities == ()


@pytest.mark.parametrize("name", ["data_dirs", "path", "toolsets"])
def test_a_setting_that_would_have_no_effect_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=f'"{name}" is not a setting'):
        Memory.open(data_dir=tmp_path, **{name: "x"})


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda memory: memory.remember(""), "`text` is empty"),
        (lambda memory: memory.remember("x", session="\0"), "`session` contains"),
        (lambda memory: memory.remember("x", about=[""]), "`about[0].name` is empty"),
        (lambda memory: memory.remember("x", source_file="\0"), "`source_file` contains"),
        (lambda memory: memory.remember("x", metadata={"at": datetime.now(UTC)}), "`metadata` is not JSON"),
        (lambda memory: memory.recall("x", since="soonish"), '`since` is "soonish"'),
        (lambda memory: memory.recall("x", types=["odd"]), '`types[0]` is "odd"'),
        (lambda memory: memory.graph.add("", "service"), "`name` is empty"),
        (lambda memory: memory.graph.relate("a", "", "b"), "`verb` is empty"),
        (lambda memory: memory.graph.relate("", "uses", "b"), "`source` is empty"),
    ],
)
def test_an_error_has_the_names_of_the_methods_arguments(
    memory: Memory, call: Callable[[Memory], object], named: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        call(memory)
    assert str(refused.value).startswith(named)


def test_a_closed_memory_says_so(tmp_path: Path) -> None:
    memory = open_again(tmp_path)
    memory.close()
    memory.close()
    with pytest.raises(Refused, match="closed"):
        memory.recall("orders")


def test_threads_share_one_memory(memory: Memory) -> None:
    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(memory.remember, [f"Fact {number} of the shop" for number in range(40)]))
    assert len({each.id for each in stored}) == 40
    assert memory.recall("shop", limit=50).total == 40


def test_two_programs_share_one_data_folder(memory: Memory, tmp_path: Path) -> None:
    program = (
        "import sys; from everkept import Memory\n"
        "with Memory.open(project='shop', data_dir=sys.argv[1], embedding_model='none') as memory:\n"
        "    for number in range(20): memory.remember(f'Note {number} of the other program')\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "data")])
    for number in range(20):
        memory.remember(f"Note {number} of this program")
    assert other.wait(60) == 0
    assert memory.recall("note", limit=50).total == 40


async def test_one_async_memory_works_in_two_event_loops(tmp_path: Path) -> None:
    async with AsyncMemory.open(project="shop", data_dir=tmp_path / "data", embedding_model="none") as memory:
        await asyncio.gather(*(memory.remember(f"Fact {number} of the shop") for number in range(20)))
        elsewhere: list[int] = []

        async def count() -> None:
            elsewhere.append((await memory.recall("shop")).total)

        thread = threading.Thread(target=lambda: asyncio.run(count()))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert elsewhere == [20]
        await memory.graph.add("Shop API", "service")
        assert [entity.name for entity in (await memory.graph.read()).entities] == ["Shop API"]


async def test_a_canceled_call_leaves_the_memory_usable(tmp_path: Path) -> None:
    async with AsyncMemory.open(project="shop", data_dir=tmp_path / "data", embedding_model="none") as memory:
        call = asyncio.create_task(memory.remember(TEXT))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await memory.remember("Mails go out at night")
        assert "Mails go out at night" in [hit.text for hit in await memory.recall("mails")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_a_child_process_is_told_to_open_its_own(tmp_path: Path) -> None:
    program = (
        "import os, sys; from everkept import Memory, Unavailable\n"
        "memory = Memory.open(project='shop', data_dir=sys.argv[1], embedding_model='none')\n"
        "memory.remember('Orders are stored in PostgreSQL')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: memory.recall('orders')\n"
        "    except Unavailable as error: print(error.hint, flush=True)\n"
        "    memory.close()\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(len(memory.recall('orders')))\n"
        "memory.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "data")],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == ["Call Memory.open() in the child process.", "1"], done.stderr


def test_the_import_loads_nothing_of_ours_but_the_package() -> None:
    program = (
        "import sys; import everkept; print([n for n in sys.modules if n.startswith('everkept.') or n == 'asyncio'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_memory_itself_loads_no_other_package_before_it_is_opened() -> None:
    program = (
        "import sys; before = {*sys.modules}; from everkept import Memory\n"
        "names = {name.partition('.')[0] for name in {*sys.modules} - before}\n"
        "print(*sorted(names - sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    assert done.stdout == "everkept\n"


def test_every_public_name_exists() -> None:
    import everkept

    assert [name for name in everkept.__all__ if getattr(everkept, name, None) is None] == []
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = everkept.nothing_such  # type: ignore[attr-defined]


def test_values_in_results_cannot_be_changed_but_copied(memory: Memory) -> None:
    value = {"likes": ["sushi"], "deep": {"a": 1}}
    memory.documents.put(("users",), "ada", value)
    document = memory.documents.get(("users",), "ada")
    assert document is not None
    stored: Any = document.value
    memory.remember("The port is 8443", metadata={"ticket": {"id": 7}})
    [hit] = memory.recall("port 8443")
    changes: list[Callable[[], Any]] = [
        lambda: stored.update(likes=[]),
        lambda: stored["deep"].pop("a"),
        lambda: stored["likes"].append("soup"),
        lambda: cast(Any, hit.metadata)["ticket"].clear(),
        lambda: cast(Any, hit.why).setdefault("x", 1.0),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="copy"):
            change()
    assert (stored, hit.metadata) == (value, {"ticket": {"id": 7}})
    for copied in (copy.deepcopy(stored), json.loads(json.dumps(stored))):
        copied["likes"].append("soup")
        assert copied["likes"] == ["sushi", "soup"]
    again = pickle.loads(pickle.dumps(document))
    with pytest.raises(TypeError):
        again.value["deep"]["a"] = 2
    assert again == document


def test_a_document_is_masked_if_asked_for(memory: Memory) -> None:
    token = "gh" + "p_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3c"
    for masked in (False, True):
        memory.documents.write([DocumentWrite(("ci",), "key", {"texts": [f"uses {token}"]}, masked=masked)])
        document = memory.documents.get(("ci",), "key")
        assert document is not None
        assert (token in str(document.value)) is not masked
