import pytest

from everkept.errors import NotFound
from everkept.families.bank.bank_entries import TaskEdit, edit_tasks

TEXT = "# Current Context\n\n## Ongoing Tasks\n\n- [ ] Write docs\n- Fix login\n- Fix logout\n"


def test_new_tasks_are_appended_and_known_ones_skipped() -> None:
    outcome = edit_tasks(TEXT, TaskEdit(add=["Deploy", "fix  LOGIN", "write docs", "deploy"]))
    assert outcome.tasks == ["[ ] Write docs", "Fix login", "Fix logout", "Deploy"]
    assert (outcome.added, outcome.removed) == (1, 0)
    assert outcome.text == TEXT + "- Deploy\n"


def test_every_task_that_contains_the_text_is_removed() -> None:
    outcome = edit_tasks(TEXT, TaskEdit(remove=["FIX LOG", "nothing"]))
    assert outcome.tasks == ["[ ] Write docs"]
    assert (outcome.added, outcome.removed, outcome.unmatched) == (0, 2, ["nothing"])
    assert [warned.code for warned in outcome.warnings] == ["task_not_found"]


def test_a_removal_that_fits_nothing_is_an_error() -> None:
    with pytest.raises(NotFound):
        edit_tasks(TEXT, TaskEdit(remove=["nothing", "at all"]))


def test_what_two_lists_have_is_kept_once() -> None:
    outcome = edit_tasks("## Ongoing Tasks\n- a\n\n## Tasks\n- A\n- b\n", TaskEdit(add=["c"]))
    assert outcome.tasks == ["a", "b", "c"]
    assert (outcome.added, outcome.removed) == (1, 0)
    assert outcome.text == "## Ongoing Tasks\n- a\n- b\n- c\n\n"


def test_a_whole_new_list_wins_and_is_counted_as_it_differs() -> None:
    edit = TaskEdit(add=["no"], remove=["no"], replace=["New", "Fix logout"])
    outcome = edit_tasks(TEXT, edit)
    assert outcome.tasks == ["New", "Fix logout"]
    assert (outcome.added, outcome.removed) == (1, 2)


def test_a_list_can_be_emptied() -> None:
    outcome = edit_tasks(TEXT, TaskEdit(replace=[]))
    assert (outcome.tasks, outcome.removed) == ([], 3)
    assert outcome.text == "# Current Context\n\n## Ongoing Tasks\n\n"


def test_placeholders_make_room_for_the_first_task() -> None:
    text = "## Ongoing Tasks\n\n- [Task 1]\n- [Task 2]\n"
    outcome = edit_tasks(text, TaskEdit(add=["Real"]))
    assert outcome.tasks == ["Real"]
    assert (outcome.added, outcome.removed) == (1, 0)
    assert edit_tasks("## Tasks\n- [Login page]\n", TaskEdit(add=["x"])).tasks == ["[Login page]", "x"]


def test_lists_under_the_other_headings_are_merged_and_nothing_is_lost() -> None:
    text = "## Tasks\n- a\n\n## Notes\ntext\n\n## Current Tasks\n- b\n\n## Ongoing Tasks\n- c\n"
    outcome = edit_tasks(text, TaskEdit(add=["d"]))
    assert outcome.text == "## Notes\ntext\n\n## Ongoing Tasks\n- c\n- b\n- a\n- d\n"
    assert (outcome.added, outcome.removed) == (1, 0)
