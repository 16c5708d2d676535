from recollect.families.memories.masking import Masking

KEY = "AKIAIOSFODNN7EXAMPLE"


def test_secrets_are_masked_wherever_they_stand() -> None:
    masking = Masking(enabled=True)
    values = {"a": KEY, "b": [{"c": f"key {KEY}"}], "d": 3, "password": "correct-horse-9-staple"}
    masked = masking.object(values)
    assert KEY not in str(masked)
    assert "horse" not in str(masked)
    assert masked["d"] == 3
    assert [warning.code for warning in masking.warnings()] == ["secret_masked"]


def test_what_is_no_secret_stays_and_needs_no_warning() -> None:
    masking = Masking(enabled=True)
    values = {"note": "Port 8080", "list": ["a", 1, None]}
    assert masking.object(values) == values
    assert masking.text("Nothing to hide") == "Nothing to hide"
    assert masking.warnings() == []


def test_masking_that_is_switched_off_touches_nothing() -> None:
    masking = Masking(enabled=False)
    assert masking.text(KEY) == KEY
    assert masking.object({"a": KEY}) == {"a": KEY}
    assert masking.warnings() == []
