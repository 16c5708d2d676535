from collections.abc import Mapping
from typing import Any

from everkept.core.records import AMENDABLE, Edit, Ref
from everkept.engines.commit_plan import get_edit_ref, redact_edit, redact_link, redact_record
from everkept.values import replace
from records import entity, link, record_ref

ADA = record_ref("Ada")


def without_secrets(_: Ref, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: "***" if value == "secret" else value for name, value in values.items()}


def test_only_what_is_to_be_another_is_and_the_version_says_so() -> None:
    record = entity("Ada", text="secret", version=3)
    assert redact_record(record, without_secrets) == entity("Ada", text="***", version=4)
    edge = link("a", "secret", "b", id="x", facets={"why": "plain"})
    assert redact_link(edge, without_secrets) == replace(edge, verb="***")


def test_what_stays_is_the_thing_itself() -> None:
    record, edge = entity("Ada", text="plain"), link("a", "knows", "b")
    edit = Edit("update", "record", "Ada", {"text": "plain"})
    assert redact_record(record, without_secrets) is record
    assert redact_link(edge, without_secrets) is edge
    assert redact_edit(edit, {ADA}, without_secrets) is edit


def test_a_record_is_asked_about_all_that_can_be_amended() -> None:
    asked: list[Mapping[str, Any]] = []

    def look(_: Ref, values: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(values)
        return values

    redact_record(entity("Ada"), look)
    redact_link(link("a", "knows", "b", facets={"why": "x"}), look)
    assert asked[0].keys() == AMENDABLE
    assert asked[1] == {"verb": "knows", "facets": {"why": "x"}}


def test_of_the_log_only_old_values_of_what_is_meant_change() -> None:
    edit = Edit("update", "record", "Ada", {"text": "secret", "name": "Ada"})
    cleaned = redact_edit(edit, {ADA}, without_secrets)
    assert cleaned == Edit("update", "record", "Ada", {"text": "***", "name": "Ada"})
    assert get_edit_ref(cleaned) == ADA
    assert redact_edit(edit, {Ref("link", "Ada")}, without_secrets) is edit
    inserted = Edit("insert", "record", "Ada")
    assert redact_edit(inserted, {ADA}, without_secrets) is inserted
    purged = Edit("update", "record", None, {"text": "secret"})
    assert redact_edit(purged, {ADA}, without_secrets) is purged
