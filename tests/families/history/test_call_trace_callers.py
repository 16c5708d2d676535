import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Insert, Record, RecordLink, Step
from everkept.families.history.call_trace import CallTrace, build_symbol_links, trace_calls
from everkept.families.history.code_outlines import outline_code
from everkept.families.history.model import CODE

SHOP, BILLING = "/work/shop", "/work/billing"
CHECKOUT = """\
class Basket(Cart):
    def total(self):
        return add_up(self.items)

def checkout(user):
    charge_card(user, Basket().total())
"""
ENDPOINT = """\
from shop.checkout import checkout

def post_order(request):
    checkout(request.user)
"""


async def show(
    store: RecordStore, name: str, text: str, *, at: int = 1, project: str = SHOP, file: str | None = None
) -> None:
    code = Record(
        id=name,
        kind=CODE,
        created_at=at,
        updated_at=at,
        text=text,
        type="python",
        name=file,
        scope=project,
        session=f"session of {name}",
    )
    symbols, links = build_symbol_links(code, outline_code(text, "python"))
    known = {record.id for record in await store.get([symbol.id for symbol in symbols])}
    steps: list[Step] = [Insert(code)]
    steps += [Insert(symbol) for symbol in symbols if symbol.id not in known]
    steps += [Insert(link) for link in links]
    await store.commit(Batch(tuple(steps), at, "test", derived=True))


def told(traced: CallTrace) -> list[str]:
    return [relation.sentence for relation in traced.relations]


async def test_who_calls_a_function_stands_before_what_it_calls_itself(store: RecordStore) -> None:
    await show(store, "one", CHECKOUT)
    await show(store, "two", ENDPOINT, at=2)
    sentences = told(await trace_calls(store, ["checkout"]))
    assert sentences[0] == "`post_order` calls `checkout`"
    assert "`checkout` is defined" in sentences
    assert sentences.index("`checkout` calls `charge_card`") > sentences.index(sentences[0])


async def test_a_change_reaches_the_callers_of_the_callers(store: RecordStore) -> None:
    await show(store, "one", CHECKOUT)
    await show(store, "two", ENDPOINT)
    traced = await trace_calls(store, ["charge_card"])
    scores = {relation.sentence: relation.score for relation in traced.relations}
    assert scores["`checkout` calls `charge_card`"] > scores["`post_order` calls `checkout`"]


async def test_what_is_extended_and_imported_is_told(store: RecordStore) -> None:
    await show(store, "one", CHECKOUT)
    await show(store, "two", ENDPOINT, file="src/api.py")
    assert "`Basket` extends `Cart`" in told(await trace_calls(store, ["Cart"]))
    sentences = told(await trace_calls(store, ["api.py"]))
    assert "src/api.py defines `post_order`" in sentences
    assert any(sentence.startswith("src/api.py imports") for sentence in sentences)


async def test_a_name_in_another_case_and_the_last_part_of_one_will_do(store: RecordStore) -> None:
    await show(store, "one", CHECKOUT)
    exact = (await trace_calls(store, ["Basket.total"])).relations[0]
    lower = (await trace_calls(store, ["basket.total"])).relations[0]
    part = (await trace_calls(store, ["total()"])).relations[0]
    other = (await trace_calls(store, ["Basket::total()"])).relations[0]
    assert other == exact
    assert exact.sentence == lower.sentence
    assert exact.score > lower.score > part.score


async def test_of_two_projects_each_shows_its_own(store: RecordStore) -> None:
    await show(store, "one", ENDPOINT, at=1)
    await show(store, "two", ENDPOINT, at=2, project=BILLING)
    both = await trace_calls(store, ["checkout"])
    assert [r.code.scope for r in both.relations if r.verb == "calls"] == [BILLING, SHOP]


async def test_the_newest_code_that_shows_a_relation_stands_for_it(store: RecordStore) -> None:
    for number in range(5):
        await show(store, f"code {number}", ENDPOINT, at=number)
    traced = await trace_calls(store, ["checkout"], limit=1)
    [relation] = traced.relations
    assert relation.code.id == "code 4"
    assert traced.total > 1
    assert traced.sessions[0] == "session of code 4"


@pytest.mark.parametrize("names", [[], ["nothing_like_it"], [""], ["`"], ["../.."], ["x" * 5_000]])
async def test_what_nobody_spoke_of_has_no_relations(store: RecordStore, names: list[str]) -> None:
    await show(store, "one", CHECKOUT)
    assert await trace_calls(store, names) == CallTrace()


async def test_code_that_is_gone_takes_its_relations_with_it(store: RecordStore) -> None:
    await show(store, "one", CHECKOUT)
    await show(store, "two", ENDPOINT)
    [code] = await store.get(["two"])
    await store.purge([code.ref])
    assert "`post_order` calls `checkout`" not in told(await trace_calls(store, ["checkout"]))


def test_links_and_symbols_have_the_same_ids_each_time() -> None:
    code = Record(id="c", kind=CODE, created_at=1, updated_at=1, text=CHECKOUT, scope=SHOP)
    first, second = (build_symbol_links(code, outline_code(CHECKOUT, "python")) for _ in range(2))
    assert first == second
    symbols, links = first
    assert len({link.id for link in links}) == len(links)
    assert {link.target for link in links} == {symbol.id for symbol in symbols}
    assert all(isinstance(link, RecordLink) and link.source == "c" for link in links)
