"""Secrets in what is written are named, however long the text is."""

from everkept.families.bank.bank_files import find_secret_warnings

SECRET = "password = hunter2secret9\n"


async def test_a_secret_is_named_by_its_kind_and_its_file_alone() -> None:
    [warning] = await find_secret_warnings({"a.md": SECRET, "b.md": "nothing"}) or []
    assert warning.code == "secret_in_file"
    assert "a.md" in warning.message
    assert "password" in warning.message
    assert "hunter2" not in warning.message


async def test_a_secret_is_found_at_the_end_of_a_long_text() -> None:
    long = "a line of text that says nothing\n" * 20_000
    assert await find_secret_warnings({"a.md": long}) is None
    assert await find_secret_warnings({"a.md": long + SECRET}) is not None
    assert await find_secret_warnings({"a.md": "x" * 450_000 + "\n" + SECRET}) is not None
