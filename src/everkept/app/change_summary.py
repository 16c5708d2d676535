"""Changes in words: what each one did to which items."""

from collections.abc import Mapping, Sequence
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.records import Change, Edit, Record, RecordLink, Ref
from everkept.core.text import clip_text, format_count
from everkept.families.memories.lifecycle import PROMOTING_TOOL
from everkept.families.memories.memory_identity import MEMORY, SESSION, get_title
from everkept.families.memories.memory_record import is_hidden_session
from everkept.families.memories.model import SUPERSEDED_BY
from everkept.language.plain_text import strip_markup
from everkept.values import Value, replace

PURGE_TOOL = "purge"
REDACT_TOOL = "redact"
MAX_SUMMARY_CHARACTERS = 200
MAX_TEXT_CHARACTERS = 60  # of a text inside a summary
MAX_NAMES = 3
_PERMANENT_SUMMARIES = {PURGE_TOOL: "Permanently deleted items", REDACT_TOOL: "Permanently masked secrets"}
_VERBS = {"insert": "Added", "delete": "Deleted", "restore": "Restored"}
_PURGED_KIND = "purged item"
_RELATION = "relation"
# Fields that a person knows by name. All others are details.
_FIELD_WORDS = {"type": "type", "importance": "importance", "tags": "tags", "scope": "scope", "occurred_at": "date"}
_DETAILS = "details"


async def summarize_changes(store: RecordStore, changes: Sequence[Change]) -> list[str]:
    """Describe each change in words, such as `Added entity Alice and 2 observations`."""
    refs = {Ref(e.subject, e.id) for change in changes for e in change.edits if e.id}
    records = await store.get([r.id for r in refs if r.subject == "record"], include_deleted=True)
    links = await store.get_links([r.id for r in refs if r.subject == "link"], include_deleted=True)
    known = {record.id: record for record in records}
    ends = {record.parent for record in records if record.parent}
    ends |= {end for link in links for end in (link.source, link.target)}
    for record in await store.get(list(ends - known.keys()), include_deleted=True):
        known[record.id] = record
    updated = {Ref(e.subject, e.id) for change in changes for e in change.edits if e.operation == "update" and e.id}
    first = min((change.seq for change in changes), default=0)
    later = await store.read_history(list(updated), after=first) if updated else []
    told = _ChangeSummarizer(known, {link.id: link for link in links}, later)
    return [told.summarize(change) for change in changes]


class _EditedItem(Value):
    """An item as the summary names it. Its owners are the items it belongs to."""

    verb: str
    kind: str
    name: str = ""
    id: str = ""
    owners: tuple[str, ...] = ()
    owner_name: str = ""  # of an observation

    @property
    def rank(self) -> int:
        return 2 if self.kind == _RELATION else 1 if self.owners else 0


class _ChangeSummarizer:
    def __init__(
        self, records: dict[str, Record], links: dict[str, RecordLink], later: Sequence[tuple[int, Edit]]
    ) -> None:
        self._records = records
        self._links = links
        self._later: dict[str, list[tuple[int, Edit]]] = {}
        for seq, edit in later:
            self._later.setdefault(edit.id or "", []).append((seq, edit))

    def summarize(self, change: Change) -> str:
        if change.tool in _PERMANENT_SUMMARIES:
            return _PERMANENT_SUMMARIES[change.tool]
        items = self._list_items(change)
        # The first memory of a session creates its record, so only the memory is listed.
        if any(item.kind != SESSION for item in items):
            items = [item for item in items if item.kind != SESSION]
        groups: dict[str, dict[tuple[int, str], list[_EditedItem]]] = {}
        for item in sorted(items, key=lambda item: item.rank):
            groups.setdefault(item.verb, {}).setdefault((item.rank, item.kind), []).append(item)
        phrases = [f"{verb} {_join(_describe_kinds(kinds))}" for verb, kinds in groups.items()]
        phrases = [*phrases[:1], *(phrase[:1].lower() + phrase[1:] for phrase in phrases[1:])]
        return clip_text("; ".join(phrases) or "Its items were purged since", MAX_SUMMARY_CHARACTERS)

    def _list_items(self, change: Change) -> list[_EditedItem]:
        """List the edited items. Several edits of one item count as the deletion or restoration, or as one update."""
        edits: dict[Ref, list[Edit]] = {}
        items: list[_EditedItem] = []
        for edit in change.edits:
            thing = (self._records if edit.subject == "record" else self._links).get(edit.id or "")
            if thing is None:
                items.append(_EditedItem(_VERBS.get(edit.operation, "Changed"), _PURGED_KIND))
            else:
                edits.setdefault(thing.ref, []).append(edit)
        for ref, of_item in edits.items():
            if ref.subject == "link":
                items.append(self._describe_link(self._links[ref.id], of_item[-1]))
            else:
                items.append(self._describe_record(change, self._records[ref.id], of_item))
        return items

    def _describe_link(self, link: RecordLink, edit: Edit) -> _EditedItem:
        name = " ".join((self._get_name(link.source), link.verb, self._get_name(link.target)))
        return _EditedItem(_VERBS[edit.operation], _RELATION, name, link.id, (link.source, link.target))

    def _describe_record(self, change: Change, record: Record, edits: Sequence[Edit]) -> _EditedItem:
        name, is_memory = self._get_name(record.id), record.kind == MEMORY
        shown = name if record.name and not is_memory else f'"{name}"'
        parent = record.parent or ""
        item = _EditedItem(
            "", record.kind, shown, record.id, (parent,) if parent else (), self._get_name(parent) if parent else ""
        )
        operation = next((edit.operation for edit in edits if edit.operation != "update"), None)
        if change.tool == PROMOTING_TOOL and is_memory:
            return replace(item, verb="Promoted")
        if operation is not None:
            is_forgotten = is_memory and operation == "delete" and not change.undoes
            return replace(item, verb="Forgot" if is_forgotten else _VERBS[operation])
        before: dict[str, Any] = {}
        for edit in reversed(edits):
            before |= edit.before or {}
        return self._describe_update(change, item, before, self._read_after(change, record, before))

    def _read_after(self, change: Change, record: Record, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that the change wrote: the current ones with later edits reversed."""
        after = {name: getattr(record, name) for name in before if hasattr(record, name)}
        for seq, edit in reversed(self._later.get(record.id, [])):
            if seq > change.seq:
                after |= {name: value for name, value in (edit.before or {}).items() if name in before}
        return after

    def _describe_update(
        self, change: Change, item: _EditedItem, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> _EditedItem:
        old: Mapping[str, Any] = before.get("facets") or {}
        new: Mapping[str, Any] = after.get("facets") or {}
        if bool(old.get("pinned")) != bool(new.get("pinned")):
            verb = "Pinned:" if new.get("pinned") else "Unpinned:"
            return _EditedItem(verb, "", self._get_name(item.id), item.id)
        if SUPERSEDED_BY in new and SUPERSEDED_BY not in old:
            return replace(item, verb="Replaced")
        if "text" in before and not is_hidden_session(self._records[item.id]):
            verb = "Summarized" if item.kind == SESSION else "Edited"
            verb = "Restored the earlier text of" if change.undoes else verb
            return replace(item, verb=verb, name=f'"{clip_text(strip_markup(after["text"]), MAX_TEXT_CHARACTERS)}"')
        if before.get("name") and before["name"] != after["name"]:
            names = f"{clip_text(before['name'], MAX_TEXT_CHARACTERS)} to {after['name']}"
            return replace(item, verb="Renamed", name=names)
        words = [word for name, word in _FIELD_WORDS.items() if name in before and before[name] != after[name]]
        fields = _join(words or [_DETAILS])
        return replace(item, verb=f"Restored the earlier {fields} of" if change.undoes else f"Changed {fields} of")

    def _get_name(self, record_id: str) -> str:
        record = self._records.get(record_id)
        if record is None:
            return record_id
        if is_hidden_session(record):
            return "…"
        title = get_title(record)
        is_name = record.name and record.kind != MEMORY
        return clip_text((title if is_name else strip_markup(title)) or record_id, MAX_TEXT_CHARACTERS)


def _describe_kinds(kinds: Mapping[tuple[int, str], Sequence[_EditedItem]]) -> list[str]:
    named = {item.id for items in kinds.values() for item in items}
    return [_describe_items(kind, items, named) for (_, kind), items in kinds.items()]


def _describe_items(kind: str, items: Sequence[_EditedItem], named: set[str]) -> str:
    """Name a few items. Observations and relations of an item that is named with them are only counted."""
    is_beside = any(owner in named for item in items for owner in item.owners)
    owners = [] if is_beside else list(dict.fromkeys(item.owner_name for item in items if item.owner_name))
    where = f" on {_list_names(owners)}" if owners else ""
    if len(items) == 1:
        return f"{kind} {items[0].name}".strip() + where
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    counted = f"{format_count(len(items), kind, plural)}{where}" if kind else ""
    shown = "" if is_beside or len(owners) > 1 else _list_names([item.name for item in items if item.name])
    return f"{counted} ({shown})" if counted and shown else counted or shown


def _list_names(names: Sequence[str]) -> str:
    return ", ".join([*names[:MAX_NAMES], *["…"] * (len(names) > MAX_NAMES)])


def _join(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
