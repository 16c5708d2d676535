import pytest

from conversations import Written, assistant, embed, tell, user
from everkept.core.ports import RecordStore
from everkept.families.history.code_search import MAX_PIECES, find_code, list_languages
from everkept.families.history.relevance import QueryContext, find_turns
from hash_embedder import HashingEmbedder

USES = "total = cart_total(items)\nprint(cart_total, total)"
DEFINES = "def cart_total(items):\n    return sum(item.price for item in items)"


async def found(store: RecordStore, query: str, language: str | None = None) -> list[str]:
    await embed(store)
    answer = await find_code(store, query, QueryContext(HashingEmbedder()), language=language)
    assert all(0 <= hit.score <= 1 for hit in answer.hits)
    return [hit.record.text for hit in answer.hits]


async def test_what_defines_a_name_stands_before_what_uses_it(store: RecordStore) -> None:
    await tell(
        store,
        "s1",
        assistant("One", code=(Written(USES),)),
        assistant("Two", code=(Written(DEFINES, defines=("cart_total",)),)),
        assistant("Three", code=(Written("def unrelated(): ..."),)),
    )
    assert (await found(store, "cart_total"))[:2] == [DEFINES, USES]


async def test_ordinary_words_of_a_longer_question_are_no_names(store: RecordStore) -> None:
    named = Written("def form(): ...", defines=("form",))
    wanted = Written("validate(form_of_login, error_message)")
    await tell(store, "s1", assistant("One", code=(named,)), assistant("Two", code=(wanted,)))
    found_first = (await found(store, "error message of the login form to validate"))[0]
    assert found_first == wanted.text


async def test_code_is_found_by_its_file(store: RecordStore) -> None:
    await tell(
        store,
        "s1",
        assistant("One", code=(Written("alpha()", file="src/billing/invoice.py"),)),
        assistant("Two", code=(Written("beta()", file="src/login.py"),)),
    )
    assert (await found(store, "invoice.py"))[0] == "alpha()"


async def test_words_are_found_inside_of_names(store: RecordStore) -> None:
    await tell(
        store,
        "s1",
        assistant("One", code=(Written("refreshAccessToken(user)", "typescript"),)),
        assistant("Two", code=(Written("renderPage()", "typescript"),)),
    )
    assert (await found(store, "refresh the access token"))[0] == "refreshAccessToken(user)"


async def test_only_code_of_the_language_is_found(store: RecordStore) -> None:
    await tell(store, "s1", assistant("One", code=(Written("login()", "python"), Written("login();", "javascript"))))
    assert await found(store, "login", "javascript") == ["login();"]


async def test_the_most_frequent_language_is_named_first(store: RecordStore) -> None:
    code = (Written("a", "go"), Written("b", "python"), Written("c", "go"), Written("d", None))
    await tell(store, "s1", assistant("x", code=code))
    assert await list_languages(store) == ["go", "python"]


CACHE, TIMER = "@lru_cache\ndef tax_of(country): ...", "let timer; input.oninput = () => setTimeout(search, 300)"


@pytest.mark.parametrize(("query", "first"), [("memoization", CACHE), ("debounce", TIMER)])
async def test_code_is_found_by_the_sentence_that_introduces_it(store: RecordStore, query: str, first: str) -> None:
    text = f"Memoization helps:\n\n```\n{CACHE}\n```\n\nAnd debounce the box:\n\n```\n{TIMER}\n```\n"
    await tell(store, "s1", assistant(text, code=(Written(CACHE), Written(TIMER))))
    assert (await found(store, query))[0] == first


async def test_code_is_found_by_the_question_that_it_answers(store: RecordStore) -> None:
    code = Written("async def deliver(url): ...")
    await tell(store, "s1", user("Write the webhook retry code"), assistant("Done, see below.", code=(code,)))
    await tell(store, "s2", user("Write the retry page"), assistant("Done, see below.", code=(Written("<html>"),)))
    assert (await found(store, "webhook retry code"))[0] == code.text
    assert await found(store, "webhook retry code", "rust") == []


async def test_code_of_its_own_turn_gets_all_of_its_score(store: RecordStore) -> None:
    await tell(store, "s1", assistant("Retry a webhook with backoff.", code=(Written("await sleep(2 ** n)"),)))
    await embed(store)
    [hit] = (await find_code(store, "retry a webhook with backoff", QueryContext(HashingEmbedder()))).hits
    [turn] = (await find_turns(store, "retry a webhook with backoff", asking=QueryContext(HashingEmbedder()))).hits
    assert hit.score >= turn.score


async def test_words_that_only_ask_for_code_do_not_count(store: RecordStore) -> None:
    await tell(store, "s1", user("Show me the code"), assistant("The code:", code=(Written("show_code()"),)))
    await tell(store, "s2", assistant("Let us debounce it.", code=(Written("clearTimeout(timer)"),)))
    assert (await found(store, "show me the code for debounce"))[0] == "clearTimeout(timer)"


async def test_a_turn_with_many_edits_does_not_fill_the_page(store: RecordStore) -> None:
    edits = tuple(Written(f"value_{n} = {n}", file=f"src/part_{n}.py") for n in range(20))
    named = Written("wait = 300", file="src/debounce.py")
    await tell(store, "s1", assistant("I debounce the search box.", code=(*edits, named)))
    hits = await found(store, "debounce")
    assert hits[0] == named.text
    assert len(hits) <= MAX_PIECES


async def test_code_that_says_it_itself_comes_before_code_beside_it(store: RecordStore) -> None:
    own = Written("def debounce(work): ...", defines=("debounce",))
    await tell(store, "s1", assistant("Let us debounce it.", code=(Written("clearTimeout(timer)"),)))
    await tell(store, "s2", assistant("A helper for the form.", code=(own,)))
    assert await found(store, "debounce") == [own.text, "clearTimeout(timer)"]


async def test_a_question_without_a_name_is_no_error(store: RecordStore) -> None:
    await tell(store, "s1", assistant("One", code=(Written("a"),)))
    assert await found(store, "?? 1 +") == []
