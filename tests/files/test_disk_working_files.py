import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.files import PATH_LIMIT, is_name
from everkept.errors import Refused
from everkept.files.disk import (
    is_temporary,
    is_working_file,
    lock_file,
    reachable_parts,
    temporary,
)


@given(st.text(min_size=1, max_size=80).filter(is_name))
def test_a_temporary_file_is_known_by_its_name_and_fits_a_disk(name: str) -> None:
    assert is_temporary(temporary(name))
    assert is_working_file(temporary(name))
    assert temporary(name) != temporary(name)
    assert len(temporary(name).encode()) - len(name.encode()) <= 255 - PATH_LIMIT


@pytest.mark.parametrize("name", [lock_file("bank"), lock_file("bank", "0" * 32)])
def test_a_lock_is_out_of_reach_in_any_case(name: str) -> None:
    for spelled in (name, name.upper(), f"sub/{name}"):
        with pytest.raises(Refused):
            reachable_parts(spelled)


@pytest.mark.parametrize(
    "name", [".gitignore", ".notes.tmp", "x.tmp", ".x.md.tmp", "yarn.lock", ".everkept.yaml", "x"]
)
def test_other_names_are_of_people(name: str) -> None:
    assert not is_working_file(name)
    assert reachable_parts(name) == (name,)
