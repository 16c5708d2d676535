import inspect

import pytest

from everkept import errors
from everkept.errors import AmbiguousName, EverkeptError, NoActiveProject, NotFound

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, EverkeptError)]


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    assert [kind.__name__ for kind in ALL if kind.__name__ not in errors.__doc__] == []


def test_every_error_has_a_code_of_its_own_and_a_description() -> None:
    assert len({kind.code for kind in ALL}) == len(ALL)
    assert all(kind.__doc__ for kind in ALL)


def test_the_envelope_has_the_same_keys_for_every_error() -> None:
    error = NotFound("entity", "Ada", hint="Look again.")
    assert error.to_envelope() == {
        "error": "not_found",
        "message": 'Entity "Ada" not found.',
        "degraded": False,
        "retry_possible": False,
        "hint": "Look again.",
        "kind": "entity",
        "name": "Ada",
    }


def test_candidates_travel_with_an_ambiguous_name() -> None:
    candidates = [{"id": "1", "use": "x (a)"}, {"id": "2", "use": "x (b)"}]
    error = AmbiguousName("entity", "x", candidates)
    assert error.to_envelope()["candidates"] == candidates
    assert "`x (a)`" in str(error)
    assert "id 2" in str(error)


@pytest.mark.parametrize("hint", [None, "Pass `project`."])
def test_a_hint_follows_the_sentence(hint: str | None) -> None:
    sentence = "No active project. Use switch_project to select one."
    assert str(NoActiveProject(hint=hint)) == (f"{sentence} {hint}" if hint else sentence)
