import pytest

from everkept.families.bank.core_files import build_digest
from everkept.families.bank.graph.model import BankEntityView, BankObservationView, BankOpenedNodes, FoundEntity
from everkept.families.bank.targeted_context import build_hit, find_pointers, format_digest, select_passage

FILE = "# Log\n\n" + "filler\n" * 20 + "## Use Postgres\n\nbecause of JSON\n\n## Other\n\nx\n"


def entity(name: str, **attrs: str) -> BankEntityView:
    return BankEntityView(f"ent_{name}", name, "thing", dict(attrs) or None, "", "")


def observation(owner: str, text: str) -> BankObservationView:
    return BankObservationView(f"obs_{text}", f"ent_{owner}", text, None, "")


@pytest.mark.parametrize(
    ("name", "kind", "attrs", "score", "matched"),
    [
        ("Shop", "service", {}, 100, ["name"]),
        ("Shopify", "service", {}, 80, ["name"]),
        ("The Shop", "service", {}, 60, ["name"]),
        ("Workshop", "service", {}, 40, ["name"]),
        ("X", "shop", {}, 80, ["type"]),
        ("X", "y", {"a": "shop"}, 60, ["attrs"]),
        ("X", "y", {}, 0, []),
    ],
)
def test_a_hit_says_where_and_how_literally_it_matched(
    name: str, kind: str, attrs: dict[str, str], score: float, matched: list[str]
) -> None:
    hit = build_hit(FoundEntity("ent_1", name, kind, dict(attrs), []), "shop")
    assert (hit.score, hit.matched_in) == (score, matched)


def test_some_of_the_words_count_for_less() -> None:
    found = FoundEntity("ent_1", "Shop API", "service", None, [])
    assert 0 < build_hit(found, "how is the shop deployed").score < 40


def test_attributes_and_observations_point_at_files() -> None:
    opened = BankOpenedNodes(
        [
            entity("a", docPath="notes.md", heading="Setup"),
            entity("b", path="progress.md"),
            entity("c", path="../secret.md"),
            entity("d"),
        ],
        [
            observation("d", "DOC: decision-log.md # Use Postgres - see March"),
            observation("d", "DOC: data.json"),
            observation("d", "see DOC: x.md"),
        ],
        [],
    )
    found = find_pointers(opened, {"ent_d": 60, "ent_a": 40, "ent_b": 40}, core_first=True)
    assert [(p.path, p.heading_hint, p.entity_id) for p in found] == [
        ("decision-log.md", "Use Postgres", "ent_d"),
        ("data.json", None, "ent_d"),
        ("notes.md", "Setup", "ent_a"),
        ("progress.md", None, "ent_b"),
    ]


def test_core_files_come_first_where_they_are_preferred() -> None:
    opened = BankOpenedNodes([entity("a", path="alpha.md"), entity("b", path="progress.md")], [], [])
    for preferred, first in ((True, "progress.md"), (False, "alpha.md")):
        assert find_pointers(opened, {}, core_first=preferred)[0].path == first


@pytest.mark.parametrize(
    ("heading", "query", "expected", "why"),
    [
        ("use postgres", "x", "## Use Postgres\n\nbecause of JSON", "section Use Postgres"),
        ("postgres", "x", "## Use Postgres\n\nbecause of JSON", "section Use Postgres"),
        ("nowhere", "because of json", "…\nfiller\n## Use", "lines around matches"),
        (None, "why JSON", "…\nfiller\n## Use", "lines around matches"),
        (None, "zebra", "# Log\n\nfiller", "beginning of the file"),
    ],
)
def test_a_passage_is_the_section_or_what_matches_or_the_beginning(
    heading: str | None, query: str, expected: str, why: str
) -> None:
    quoted, reason = select_passage(FILE, heading, query)
    assert quoted.startswith(expected)
    assert reason == why


def test_the_digest_keeps_to_its_length() -> None:
    active = "# C\n\n## Ongoing Tasks\n\n" + "".join(f"- Task number {i}\n" for i in range(50))
    digest = build_digest({"active-context.md": active}, most_progress=3, most_decisions=3, with_patterns=False)
    text = format_digest(digest, 100)
    assert text.startswith("Tasks: Task number 0\n")
    assert len(text) <= 100
