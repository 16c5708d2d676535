"""What a note says: properties, observations, links and tags."""

from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

from everkept.core.times import format_iso
from everkept.exchange.foreign import ForeignEntity, ForeignRelation
from everkept.exchange.markdown_notes import (
    Note,
    NoteIndex,
    build_note_entity,
    find_tags,
    parse_note,
    split_blocks,
    walk_notes,
)

FILE_TIME = 1_700_000_000_000_000


def parse(text: str, path: str = "notes/Shop.md") -> Note:
    return parse_note(text, PurePosixPath(path), FILE_TIME)


def read_entity(*notes: Note) -> tuple[ForeignEntity, set[tuple[str, str]]]:
    """Return the entity of the first note, with its relations."""
    items = list(build_note_entity(notes[0], NoteIndex(notes), Counter()))
    entity = next(item for item in items if isinstance(item, ForeignEntity))
    return entity, {(item.verb, item.target) for item in items if isinstance(item, ForeignRelation)}


def test_properties_name_title_times_and_tags() -> None:
    note = parse("---\ntitle: Shop API\ncreated: 2026-03-02T10:00:00Z\ntags: '#a, b'\n---\n# Shop\nSee #c/d and #12.\n")
    assert (note.title, note.tags) == ("Shop API", ("a", "b", "c/d"))
    assert format_iso(note.created_at) == "2026-03-02T10:00:00.000Z"
    assert parse("no properties").created_at == FILE_TIME
    assert parse("---\r\ntags: [x]\r\n---\r\nbody\r\n").tags == ("x",)


def test_a_note_with_endless_properties_is_skipped_and_counted(tmp_path: Path) -> None:
    lines = "".join(f"key{number}: value\r\n" for number in range(5_000))
    (tmp_path / "long.md").write_text(f"---\r\n{lines}---\r\nbody", encoding="utf-8", newline="")
    (tmp_path / "text.md").write_text(f"---\ntitle: Long text\n---\n{lines}", encoding="utf-8", newline="")
    skipped = Counter[str]()
    assert [note.title for note in walk_notes(tmp_path, skipped)] == ["Long text"]
    assert skipped == {"note with properties over 64 KiB": 1}


@pytest.mark.parametrize("text", ["---\njust words\n---\nbody", "---\n a: [\n---\nbody", "---\nnever closed"])
def test_what_is_not_a_mapping_belongs_to_the_text(text: str) -> None:
    assert parse(text).body == text


def test_items_take_all_their_lines_and_code_stays_whole() -> None:
    code = "```py\n# no heading\n\n- no item\n```"
    body = f"# Head\nOne\ntwo\n\n- item\n  goes on\n  - nested\n1. first\n---\n{code}\n%%gone%%<!-- too -->"
    blocks = [block.text for block in split_blocks(body)]
    assert blocks == ["One\ntwo", "item\ngoes on", "nested", "first", code]


def test_a_mark_at_the_end_of_a_block_is_not_part_of_its_text() -> None:
    (block,) = split_blocks("- Listens on 8443 ^port-1")
    assert (block.text, block.mark) == ("Listens on 8443", "port-1")


def test_lines_are_observations_relations_or_links() -> None:
    note = parse(
        "Intro with [[Orders DB|the database]].\n\n- [decision] Uses PostgreSQL #db (since March)\n"
        '- depends_on [[Orders DB]] (hard)\n- "is part of" [[Shop]]\n- see `[[code]]` and [other](../other.md#part)\n'
        "- [ ] todo\n- ![[picture.png]]\n"
    )
    entity, relations = read_entity(note, parse("", "Orders DB.md"), parse("", "other.md"))
    assert "[decision] Uses PostgreSQL #db (since March)" in entity.observations
    assert not any("todo" in each or "depends_on" in each for each in entity.observations)
    assert relations == {("links_to", "Orders DB.md"), ("depends_on", "Orders DB.md"), ("links_to", "other.md")}


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ("Shop API", "x/Shop API.md"),
        ("shop api#Ports", "x/Shop API.md"),
        ("x/Shop API", "x/Shop API.md"),
        ("orders database", "db.md"),
        ("Nowhere^b", "Nowhere"),
        ("deep/Nowhere", "Nowhere"),
    ],
)
def test_a_link_names_a_note_by_title_path_or_alias(link: str, found: str) -> None:
    others = parse("", "x/Shop API.md"), parse("---\naliases: [Orders Database]\n---\n", "db.md")
    assert read_entity(parse(f"[[{link}]]"), *others)[1] == {("links_to", found)}


def test_links_to_itself_and_notes_without_semantics_have_no_relation() -> None:
    assert read_entity(parse("[[Shop]]"))[1] == set()
    assert read_entity(parse("---\nbm_parse_semantics: false\n---\n- uses [[Other]]"))[1] == set()


def test_tags_need_a_letter_and_stay_out_of_code() -> None:
    assert find_tags("#1 #a1 x#y `#code` (#b)") == ["a1", "b"]


def test_hidden_folders_templates_and_links_of_the_file_system_are_skipped(tmp_path: Path) -> None:
    for name in ("a.md", ".trash/b.md", "Templates/c.md", "deep/d.MD", "e.canvas"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("text", encoding="utf-8")
    (tmp_path / "large.md").write_bytes(b"x" * (2 * 1024 * 1024 + 1))
    skipped: Counter[str] = Counter()
    assert [str(note.path) for note in walk_notes(tmp_path, skipped)] == ["a.md", "deep/d.MD"]
    assert skipped == {"file over 2 MiB": 1}
