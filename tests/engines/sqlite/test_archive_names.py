from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.care_results import OwningProject
from everkept.engines.sqlite.archive import is_database_name, read_owners
from everkept.engines.sqlite.snapshot import META, open_snapshot


@pytest.mark.parametrize("name", ["_meta.db", "user.db", "history.db", "projects/a-b.db", "archive/a.db"])
def test_names_that_a_data_folder_has(name: str) -> None:
    assert is_database_name(name)


@given(st.text(alphabet="./\\:ab\0", max_size=12), st.sampled_from(["", ".db"]))
def test_no_name_leads_out_of_a_data_folder(start: str, end: str) -> None:
    for name in (start + end, f"projects/{start}{end}"):
        if is_database_name(name):
            folders = name.split("/")[:-1]
            assert folders in (["projects"], ["archive"])
            assert ".." not in name
            assert "\\" not in name


def test_a_copy_of_the_list_says_whose_each_file_is(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with open_snapshot(data) as moment:
        moment.copy(META, copy, lambda _done, _total: None)
        assert read_owners(copy) == moment.owners
    found = {Path(name).parent.name: owner for name, owner in moment.owners.items()}
    assert found == {"projects": OwningProject("shop", "active"), "archive": OwningProject("old", "archived")}
