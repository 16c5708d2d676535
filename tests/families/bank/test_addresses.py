"""Where the path of a caller leads."""

from pathlib import Path

import pytest

from recollect.errors import InvalidInput
from recollect.families.bank.addresses import resolved

START = str(Path.cwd() / "start")


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        (".", ("start",)),
        ("shop", ("start", "shop")),
        ("./shop/", ("start", "shop")),
        ("../other", ("other",)),
        ("shop/../api", ("start", "api")),
    ],
)
def test_a_relative_path_begins_at_the_start(path: str, parts: tuple[str, ...]) -> None:
    assert resolved(path, START) == str(Path.cwd().joinpath(*parts))


def test_what_says_where_it_is_stays_as_it_is() -> None:
    absolute = str(Path.cwd() / "elsewhere")
    assert resolved(absolute, START) == absolute
    assert resolved("~/shop", START) == "~/shop"
    assert resolved("ssh://ada@host/srv/shop", START) == "ssh://ada@host/srv/shop"
    assert resolved("SSH://ada@host/srv/shop", None) == "ssh://ada@host/srv/shop"


@pytest.mark.parametrize(
    ("path", "address"),
    [
        (".", "ssh://ada@host:2222/srv/start"),
        ("shop", "ssh://ada@host:2222/srv/start/shop"),
        ("../shop", "ssh://ada@host:2222/srv/shop"),
        ("../../../shop", "ssh://ada@host:2222/shop"),
        ("/home/ada", "ssh://ada@host:2222/home/ada"),
        ("my shop", "ssh://ada@host:2222/srv/start/my%20shop"),
        ("~/shop", "ssh://ada@host:2222/~/shop"),
    ],
)
def test_a_start_on_another_machine_keeps_paths_there(path: str, address: str) -> None:
    assert resolved(path, "ssh://ada@host:2222/srv/start") == address


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("ssh://", '"ssh://" names no machine.'),
        ("ssh:///srv", '"ssh:///srv" names no machine.'),
        ("ssh://host", '"ssh://host" names no user.'),
        ("https://ada:secret@host/shop", '"https://…" is no address that is known here.'),
    ],
)
def test_an_address_that_is_none_is_quoted_as_it_was_given(path: str, said: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        resolved(path, START)
    assert raised.value.message == said


def test_a_relative_path_without_a_start_is_an_error() -> None:
    with pytest.raises(InvalidInput):
        resolved("shop", None)
