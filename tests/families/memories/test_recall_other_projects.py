import pytest

from assistant import Assistant, codes
from everkept.core.ports import Library
from everkept.retrieval.other_projects import MAX_HINT_PROJECTS


@pytest.fixture
async def blog(library: Library) -> Assistant:
    """Another project, which has one memory for itself and one for the user."""
    blog = Assistant(library, project="blog")
    await blog.store("The comments database runs on port 5433")
    await blog.store("Only this session knows the comments port", "session")
    await blog.store("Likes tea", "user")
    return blog


@pytest.mark.usefixtures("blog")
async def test_all_projects_are_searched_when_asked_for(assistant: Assistant) -> None:
    await assistant.store("The orders database runs on port 5432")
    assert await assistant.texts("database port", strategy="keyword") == ["The orders database runs on port 5432"]
    found = await assistant.beside("two").recall("database port", all_projects=True, strategy="keyword")
    assert {(each["content"], each["project"]) for each in found} == {
        ("The orders database runs on port 5432", "shop"),
        ("The comments database runs on port 5433", "blog"),
    }


@pytest.mark.usefixtures("blog")
async def test_a_memory_of_the_user_is_found_once_and_has_no_project(assistant: Assistant) -> None:
    (tea,) = await assistant.recall("tea", all_projects=True, strategy="keyword")
    assert "project" not in tea


async def test_a_project_that_is_off_or_archived_is_left_alone(assistant: Assistant, blog: Assistant) -> None:
    await blog.library.set_off("blog", off=True)
    assert await assistant.texts("comments port", all_projects=True, strategy="keyword") == []
    assert codes(await assistant("recall_memories", query="comments port")) == []
    await blog.library.set_off("blog", off=False)
    await blog.library.archive("blog")
    assert await assistant.texts("comments port", all_projects=True, strategy="keyword") == []
    assert codes(await assistant("recall_memories", query="comments port")) == []


@pytest.mark.usefixtures("blog")
async def test_when_nothing_is_found_a_close_memory_elsewhere_is_named(assistant: Assistant) -> None:
    answer = await assistant("recall_memories", query="on which port is the comments database?")
    (warning,) = answer["warnings"]
    assert (answer["memories"], warning["code"]) == ([], "known_elsewhere")
    assert '"blog"' in warning["message"]
    assert "`all_projects`" in warning["message"]


@pytest.mark.usefixtures("blog")
@pytest.mark.parametrize("query", ["colour of the comments page border", "???", "the"])
async def test_what_is_not_close_is_not_named(assistant: Assistant, query: str) -> None:
    assert codes(await assistant("recall_memories", query=query)) == []


@pytest.mark.usefixtures("blog")
async def test_the_hint_keeps_to_the_filters(assistant: Assistant) -> None:
    for filters in ({"scope": ["user"]}, {"tags": ["net"]}, {"type": ["procedural"]}, {"min_importance": 0.9}):
        assert codes(await assistant("recall_memories", query="comments database port", **filters)) == []


@pytest.mark.usefixtures("blog")
async def test_a_recall_that_finds_something_looks_nowhere_else(
    assistant: Assistant, monkeypatch: pytest.MonkeyPatch
) -> None:
    await assistant.store("The database is small")
    opened: list[str] = []
    usual = assistant.library.open

    async def watch(name: str) -> object:
        opened.append(name)
        return await usual(name)

    monkeypatch.setattr(assistant.library, "open", watch)
    answer = await assistant("recall_memories", query="comments database port")
    assert (len(answer["memories"]), set(opened)) == (1, {"shop"})


@pytest.mark.usefixtures("blog")
async def test_only_a_few_projects_are_searched_for_the_hint(assistant: Assistant) -> None:
    for number in range(MAX_HINT_PROJECTS + 1):
        await assistant.library.create(f"later-{number}", "")
    assert codes(await assistant("recall_memories", query="comments database port")) == []
    assert await assistant.texts("comments database", all_projects=True, strategy="keyword")
