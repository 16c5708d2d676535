import pytest

from everkept.families.gateway.model import JSON
from everkept.families.gateway.schema_facts import SchemaRoot, SchemaTooComplex, StepBudget


def test_steps_come_to_an_end() -> None:
    steps = StepBudget(3)
    steps.take(3)
    with pytest.raises(SchemaTooComplex):
        steps.take()


def test_steps_can_be_shared() -> None:
    steps = StepBudget(8)
    SchemaRoot({}, steps).steps.take(8)
    with pytest.raises(SchemaTooComplex):
        SchemaRoot({}, steps).resolve_reference("#/a/b/c")


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", "whole"),
        ("#/a~1b/0", 1),
        ("#/%C3%A9", 2),
        ("#/a~1b/7", None),
        ("#/a~1b/" + "9" * 5_000, None),
        ("#/a~1b/x", None),
        ("#anchor", None),
        ("other.json#/a", None),
        (5, None),
    ],
)
def test_a_reference_leads_into_the_schema_or_nowhere(reference: object, found: object) -> None:
    schema: JSON = {"a/b": [1], "é": 2}
    assert SchemaRoot(schema).resolve_reference(reference) == (schema if found == "whole" else found)
