from code_samples import SAMPLES
from everkept.core.records import Record
from everkept.families.history.call_trace import build_symbol_links
from everkept.families.history.code_outlines import CodeCall, CodeOutline, outline_code
from everkept.families.history.model import CODE, SYMBOL, build_symbol_id

SHOP = "/home/ann/shop"


def code(name: str = "code_1", project: str = SHOP) -> Record:
    return Record(id=name, kind=CODE, created_at=7, updated_at=7, text="…", scope=project)


def test_code_is_linked_to_all_that_it_speaks_of() -> None:
    symbols, links = build_symbol_links(code(), outline_code(SAMPLES["python"].text, "python"))
    names = {symbol.id: symbol.name for symbol in symbols}
    told = {(link.verb, names[link.target]) for link in links}
    assert ("defines", "Basket.total") in told
    assert ("calls", "compute") in told
    assert ("imports", "shop.cart") in told
    assert ("extends", "models.Model") in told
    assert {link.source for link in links} == {"code_1"}
    assert {link.created_at for link in links} == {7}


def test_a_symbol_is_named_once_in_each_project() -> None:
    symbols, _ = build_symbol_links(code(), outline_code("class Cart: pass\nCart()\nCart()", "python"))
    [cart] = symbols
    assert (cart.id, cart.kind) == (build_symbol_id(SHOP, "Cart"), SYMBOL)
    assert (cart.name, cart.name_key, cart.variant, cart.scope) == ("Cart", "Cart", SHOP, SHOP)
    [elsewhere], _ = build_symbol_links(code(project=""), outline_code("Cart()", "python"))
    assert elsewhere.id != cart.id


def test_a_call_lists_all_who_call() -> None:
    made = CodeOutline(calls=(CodeCall("pay", "one"), CodeCall("pay", "two"), CodeCall("pay"), CodeCall("go")))
    symbols, links = build_symbol_links(code(), made)
    names = {symbol.id: symbol.name for symbol in symbols}
    assert {names[link.target]: dict(link.facets) for link in links} == {"pay": {"by": ["one", "two"]}, "go": {}}


def test_a_symbol_is_what_the_code_says_that_it_is_and_else_unknown() -> None:
    text = "import shop\nfrom shop import helper\nclass Cart: pass\nother()\nhelper()"
    symbols, _ = build_symbol_links(code(), outline_code(text, "python"))
    assert {symbol.name: symbol.type for symbol in symbols} == {
        "Cart": "class",
        "shop": "module",
        "helper": None,
        "other": None,
    }


def test_links_have_the_same_ids_each_time_and_others_for_other_code() -> None:
    made = outline_code(SAMPLES["rust"].text, "rust")
    _, links = build_symbol_links(code(), made)
    _, again = build_symbol_links(code(), made)
    _, elsewhere = build_symbol_links(code("code_2"), made)
    assert links == again
    assert len({link.id for link in (*links, *elsewhere)}) == len(links) + len(elsewhere)
