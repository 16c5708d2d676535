import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.files import MAX_NAME_BYTES, is_name
from everkept.errors import Refused
from everkept.files.local_disk import (
    build_lock_name,
    build_temporary_name,
    is_temporary,
    is_working_file,
    split_reachable,
)


@given(st.text(min_size=1, max_size=80).filter(is_name))
def test_a_temporary_file_is_known_by_its_name_and_fits_a_disk(name: str) -> None:
    assert is_temporary(build_temporary_name(name))
    assert is_working_file(build_temporary_name(name))
    assert build_temporary_name(name) != build_temporary_name(name)
    assert len(build_temporary_name(name).encode()) - len(name.encode()) <= 255 - MAX_NAME_BYTES


@pytest.mark.parametrize("name", [build_lock_name("bank"), build_lock_name("bank", "0" * 32)])
def test_a_lock_is_out_of_reach_in_any_case(name: str) -> None:
    for spelled in (name, name.upper(), f"sub/{name}"):
        with pytest.raises(Refused):
            split_reachable(spelled)


@pytest.mark.parametrize("name", [".gitignore", ".notes.tmp", "x.tmp", ".x.md.tmp", "yarn.lock", ".everkept.yaml", "x"])
def test_other_names_are_of_people(name: str) -> None:
    assert not is_working_file(name)
    assert split_reachable(name) == (name,)
