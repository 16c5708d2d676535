"""Records, links and batches, as short as tests need them."""

from typing import Any

from everkept.core.records import Batch, Insert, Record, RecordLink, Ref, Step

MILLISECOND = 1_000
DAY_ONE = 1_700_000_000_000 * MILLISECOND


def entity(name: str, **more: Any) -> Record:
    """An entity whose id is its name."""
    fields = {
        "id": name,
        "kind": "entity",
        "name": name,
        "name_key": name.lower(),
        "type": "thing",
        "created_at": DAY_ONE,
        "updated_at": DAY_ONE,
    }
    return Record(**(fields | more))


def note(parent: str, text: str, **more: Any) -> Record:
    """An observation whose id is its text."""
    fields = {
        "id": text,
        "kind": "observation",
        "text": text,
        "parent": parent,
        "created_at": DAY_ONE,
        "updated_at": DAY_ONE,
    }
    return Record(**(fields | more))


def link(source: str, verb: str, target: str, **more: Any) -> RecordLink:
    fields = {
        "id": f"{source} {verb} {target}",
        "source": source,
        "verb": verb,
        "target": target,
        "created_at": DAY_ONE,
    }
    return RecordLink(**(fields | more))


def batch(*steps: Step | Record | RecordLink, at: int = DAY_ONE, **more: Any) -> Batch:
    """A bare record or link is an insert."""
    inserted = [Insert(step) if isinstance(step, Record | RecordLink) else step for step in steps]
    return Batch(tuple(inserted), at, **({"tool": "test"} | more))


def record_ref(record_id: str) -> Ref:
    return Ref("record", record_id)


def link_ref(link_id: str) -> Ref:
    return Ref("link", link_id)


def memory(text: str, **more: Any) -> Record:
    """A memory whose id is its text."""
    fields = {
        "id": text,
        "kind": "memory",
        "text": text,
        "type": "semantic",
        "scope": "project",
        "importance": 0.5,
        "created_at": DAY_ONE,
        "updated_at": DAY_ONE,
    }
    return Record(**(fields | more))
