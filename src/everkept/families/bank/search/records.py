"""The parts of a file as records, and the steps that bring those of yesterday in step with it."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from everkept.core.records import Delete, Insert, Record, Step, Update
from everkept.core.secrets import masked, secret_spans
from everkept.families.bank.files.bank_files import etag_of
from everkept.families.bank.files.texts import as_shown
from everkept.families.bank.model import SECTION
from everkept.families.bank.search.parts import Part, moment_of, parts_of
from everkept.families.bank.text.encodings import as_utf8
from everkept.values import Value, replace

MOST_INDEXED = 4 * 1024 * 1024  # bytes from a file's beginning
MOST_PARTS = 10_000  # likewise: a search waits while they are written


class IndexedText(Value):
    """What of a file belongs into the index: its parts as they stand there, and without secrets.

    `is_partial` where they are those of the beginning only.
    """

    etag: str
    parts: list[Part]
    masked: list[Part]
    is_partial: bool


def indexed_text(name: str, data: bytes, *, mask: bool) -> IndexedText:
    """Cut as the file stands there, and masked as a whole: a secret may span two parts."""
    text = _beginning(data)
    parts = _cut(name, text)
    is_partial = len(as_utf8(data)) > MOST_INDEXED or len(parts) > MOST_PARTS
    parts = parts[:MOST_PARTS]
    cleaned = list(_masked(parts, secret_spans(text))) if mask else parts
    return IndexedText(etag_of(data), parts, cleaned, is_partial)


def line_ranges(name: str, data: bytes) -> list[tuple[int, int]]:
    """The first and the last line of each part."""
    return [(part.line, part.last) for part in _cut(name, _beginning(data))[:MOST_PARTS]]


def plan(
    file: str, scope: str, parent: str, old: Sequence[Record], parts: Sequence[Part], at: int
) -> tuple[int, list[Step]]:
    """The position of the first part, and the steps from the old sections to these parts.

    What reads the same stays the same record, and the positions begin where most of these keep
    theirs: an entry on top moves nothing. Of the others, those under the same heading are changed.
    """
    same = _paired([(_name(file, p), p.text) for p in parts], [((r.name, r.text), r) for r in old])
    shifts = Counter((record.position or 0) - number for number, record in same.items())
    first = shifts.most_common(1)[0][0] if shifts else 0
    used = {record.id for record in same.values()}
    names = [None if number in same else _name(file, p) for number, p in enumerate(parts)]
    like = _paired(names, [(record.name, record) for record in old if record.id not in used])
    used |= {record.id for record in like.values()}
    steps: list[Step] = []
    for number, part in enumerate(parts):
        values = {
            "text": part.text,
            "position": first + number,
            "occurred_at": moment_of(part.text),
        }
        record = same.get(number) or like.get(number)
        if record is None:
            steps.append(Insert(_section(file, scope, parent, part, values, at)))
        elif any(getattr(record, name) != value for name, value in values.items()):
            steps.append(Update(record.id, values, record.version))
    steps += [Delete(record.ref) for record in old if record.id not in used]
    return first, steps


def _beginning(data: bytes) -> str:
    data = as_utf8(data)
    if len(data) > MOST_INDEXED:
        data = data[: data.rfind(b"\n", 0, MOST_INDEXED) + 1 or MOST_INDEXED]
    return as_shown(data)


def _cut(name: str, text: str) -> list[Part]:
    return parts_of(text, is_markdown=name.lower().endswith(".md"))


def _masked(parts: Sequence[Part], spans: Sequence[tuple[int, int, str]]) -> Iterator[Part]:
    passed = 0
    for part in parts:
        end = part.start + len(part.text)
        while passed < len(spans) and spans[passed][1] <= part.start:
            passed += 1
        pieces: list[str] = []
        at = part.start
        for start, stop, kind in spans[passed:]:
            if start >= end:
                break
            pieces += [part.text[at - part.start : max(start, at) - part.start]]
            pieces.append(f"[masked: {kind}]")
            at = min(stop, end)
        text = "".join([*pieces, part.text[at - part.start :]]) if pieces else part.text
        yield replace(part, heading=masked(part.heading)[0], text=text)


def _paired(wanted: Sequence[Any], old: Sequence[tuple[Any, Record]]) -> dict[int, Record]:
    """For the numbers of what is wanted the records with the same key, each used once."""
    waiting: defaultdict[Any, list[Record]] = defaultdict(list)
    for key, record in reversed(old):
        waiting[key].append(record)
    return {
        number: waiting[key].pop()
        for number, key in enumerate(wanted)
        if key is not None and waiting.get(key)
    }


def _name(file: str, part: Part) -> str:
    return f"{file}: {part.heading}" if part.heading else file


def _section(
    file: str, scope: str, parent: str, part: Part, values: dict[str, Any], at: int
) -> Record:
    """Without a session: in one, the words of its neighbours would find it as well."""
    return Record(
        id=str(uuid4()),
        kind=SECTION,
        created_at=at,
        updated_at=at,
        name=_name(file, part),
        type=file,
        parent=parent,
        scope=scope,
        facets={"file": file, **({"heading": part.heading} if part.heading else {})},
        **values,
    )
