import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.text import compute_name_key
from everkept.families.bank.graph.model import compute_entity_id, compute_observation_id, compute_relation_id

SHOP = "ent_dCaO4uichTpa"


@pytest.mark.parametrize(
    ("name", "entity_type", "expected"),
    [
        ("Shop API", "service", SHOP),
        ("  shop   api ", "Service", SHOP),
        ("Größe", "Konzept", "ent_WhgcFEjZPHb8"),
        (unicodedata.normalize("NFD", "Größe"), "Konzept", "ent_WhgcFEjZPHb8"),
    ],
)
def test_an_entity_has_the_id_that_other_programs_compute(name: str, entity_type: str, expected: str) -> None:
    assert compute_entity_id(name, entity_type) == expected


def test_observations_and_relations_have_the_ids_that_other_programs_compute() -> None:
    when = "2026-03-02T13:00:00.000Z"
    assert compute_observation_id(SHOP, "Runs on port 8443", when) == "obs_5dNQbd6hsN2S"
    assert compute_relation_id(SHOP, "reads_from", "ent_C38QptuQfgbA") == "rel_jgTDOK1PPmiB"
    assert compute_relation_id(SHOP, "READS_FROM", "ent_C38QptuQfgbA") == "rel_jgTDOK1PPmiB"


@given(st.text(), st.text(), st.booleans(), st.sampled_from([" ", "\t ", "\n"]))
def test_spellings_that_are_one_name_give_one_id(name: str, entity_type: str, composed: bool, blank: str) -> None:
    form = unicodedata.normalize("NFC" if composed else "NFD", name)
    spelled = blank + form.replace(" ", blank * 2)
    same = compute_name_key(spelled) == compute_name_key(name)
    assert (compute_entity_id(spelled, entity_type) == compute_entity_id(name, entity_type)) is same


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_has_an_id_of_sixteen_characters(text: str) -> None:
    assert len(compute_observation_id(SHOP, text, "")) == 16
