import threading

import pytest

from everkept.core.secrets import LARGE_CHARACTERS, Masker, mask_apart
from everkept.errors import InvalidInput

KEY = "AKIAIOSFODNN7EXAMPLE"


def test_secrets_are_masked_wherever_they_stand() -> None:
    masking = Masker(enabled=True)
    values = {"a": KEY, "b": [{"c": f"key {KEY}"}], "d": 3, "password": "correct-horse-9-staple"}
    masked = masking.mask_json(values)
    assert KEY not in str(masked)
    assert "horse" not in str(masked)
    assert masked["d"] == 3
    assert list(masking.kinds) == ["aws access key", "password"]


def test_what_is_no_secret_stays_and_needs_no_warning() -> None:
    masking = Masker(enabled=True)
    values = {"note": "Port 8080", "list": ["a", 1, None]}
    assert masking.mask_json(values) == values
    assert masking.mask("Nothing to hide") == "Nothing to hide"
    assert masking.kinds == {}


def test_masking_that_is_switched_off_touches_nothing() -> None:
    masking = Masker(enabled=False)
    assert masking.mask(KEY) == KEY
    assert masking.mask_json({"a": KEY}) == {"a": KEY}
    assert masking.kinds == {}


def test_names_of_values_are_masked_apart_from_the_values() -> None:
    masking = Masker(enabled=True)
    masked = masking.mask_json({KEY: "Port 8080", "note": "kept"})
    assert KEY not in str(masked)
    assert sorted(masked.values()) == ["Port 8080", "kept"]
    assert len(masking.kinds) == 1


def test_an_id_with_a_secret_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidInput) as caught:
        Masker(enabled=True).check_id(f"session {KEY}", "session_id")
    assert KEY not in str(caught.value.to_envelope())
    Masker(enabled=True).check_id("session:0b6f4f1d2a7d4c3f9a3e1f2b3c4d5e6f", "session_id")
    Masker(enabled=False).check_id(KEY, "session_id")


async def test_a_large_text_is_masked_in_another_thread_and_a_small_one_is_not() -> None:
    here = threading.get_ident()
    assert await mask_apart(LARGE_CHARACTERS, threading.get_ident) == here
    assert await mask_apart(LARGE_CHARACTERS + 1, threading.get_ident) != here
