import pytest

from everkept.engines.memory.library import MemoryLibrary
from everkept.hooks.workspace import is_todo, read_open_todos
from hook_session import here
from records import batch, memory


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("TODO write the docs", True),
        ("todo: write the docs", True),
        ("To-do: write the docs", True),
        ("[ ] write the docs", True),
        ("- [ ] write the docs", True),
        ("[x] write the docs", False),
        ("The todo list is a sample app.", False),
        ("todos are kept in Redis", False),
        ("TODOS", False),
    ],
)
def test_a_memory_may_say_itself_that_it_is_one(text: str, wanted: bool) -> None:
    assert is_todo(memory(text)) == wanted


def test_those_that_are_open_are_found_however_old_and_unimportant_they_are() -> None:
    library = MemoryLibrary()
    here(library.create("shop", ""))
    store = here(library.open("shop"))[1]
    records = [
        memory("TODO the oldest", importance=0.1),
        memory("Done.", tags=("todo", "done")),
        memory("TODO theirs", scope="session", session="other"),
        *(memory(f"fact {number}") for number in range(300)),
        memory("[ ] a box", importance=0.2),
        memory("Tagged.", tags=("todo",)),
    ]
    here(store.commit(batch(*records)))
    found = [record.text for record in here(read_open_todos(store, "mine"))]
    assert sorted(found) == ["TODO the oldest", "Tagged.", "[ ] a box"]
