"""What one call does to the list of tasks."""

import re
from collections.abc import Sequence
from typing import Annotated

from everkept.core.text import clipped, normalised
from everkept.errors import NotFound
from everkept.families.bank.text.entries import ITEM_LIMIT, TEXT_LIMIT
from everkept.families.bank.text.headings import TASKS
from everkept.families.bank.text.lists import listed, with_list
from everkept.families.bank.text.markdown import without_box
from everkept.tools.schema import Field
from everkept.tools.tool import Warned
from everkept.values import Value

# As templates have them where nothing was ever filled in: [Task 1].
_PLACEHOLDER = re.compile(r"\[[A-Za-z][A-Za-z ]* \d+\]")

ListItem = Annotated[str, Field(max_length=TEXT_LIMIT, blank=False)]


class TaskEdit(Value):
    """A whole new list wins over items to add and to remove."""

    add: (
        Annotated[list[ListItem], Field("To append; known ones skipped.", max_items=ITEM_LIMIT)]
        | None
    ) = None
    remove: (
        Annotated[list[ListItem], Field("Drop each task that contains one.", max_items=ITEM_LIMIT)]
        | None
    ) = None
    replace: Annotated[list[ListItem], Field("Whole new list.", max_items=ITEM_LIMIT)] | None = None

    @property
    def is_empty(self) -> bool:
        return self.replace is None and not self.add and not self.remove


class TaskOutcome(Value):
    """The list as it is now, and what really happened to it."""

    text: str
    tasks: list[str]
    added: int
    removed: int
    unmatched: list[str]

    @property
    def warnings(self) -> list[Warned]:
        return [
            Warned("task_not_found", f'No task contains "{clipped(needle)}".')
            for needle in self.unmatched
        ]


def edited_tasks(text: str, edit: TaskEdit) -> TaskOutcome:
    """Raises NotFound where a call that only removes fits no task."""
    before = listed(text, TASKS)
    if edit.replace is not None:
        return _outcome(with_list(text, TASKS, edit.replace), before, [])
    needles = {needle: needle.strip().casefold() for needle in edit.remove or ()}
    folded = [task.casefold() for task in before]
    kept = [
        task
        for task, low in zip(before, folded, strict=True)
        if not any(needle in low for needle in needles.values())
    ]
    unmatched = [
        shown for shown, needle in needles.items() if not any(needle in low for low in folded)
    ]
    if needles and len(unmatched) == len(needles) and not edit.add:
        shown = '" or "'.join(map(clipped, needles))
        raise NotFound("task", shown, message=f'No task contains "{shown}".')
    wanted = extended(kept, edit.add or ())
    return _outcome(with_list(text, TASKS, wanted, in_place=True), before, unmatched)


def extended(items: Sequence[str], new: Sequence[str]) -> list[str]:
    """The list with what it does not have yet; the placeholders of a template go."""
    known = {_key(item) for item in items}
    result = [item for item in items if not (new and _PLACEHOLDER.fullmatch(item))]
    for item in map(str.strip, new):
        if _key(item) not in known:
            known.add(_key(item))
            result.append(item)
    return result


def _outcome(text: str, before: Sequence[str], unmatched: list[str]) -> TaskOutcome:
    tasks = listed(text, TASKS)
    was = [_key(task) for task in before if not _PLACEHOLDER.fullmatch(task)]
    now = [_key(task) for task in tasks if not _PLACEHOLDER.fullmatch(task)]
    known, left = set(was), set(now)
    added = sum(key not in known for key in now)
    removed = sum(key not in left for key in was)
    return TaskOutcome(text, tasks, added, removed, unmatched)


def _key(item: str) -> str:
    return normalised(without_box(item))
