"""Past conversations as a hook may tell of them: without those of projects that are off."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a hook loads only what it uses
    from everkept.core.ports import ReadingRoom, RecordStore


async def past_of(room: "ReadingRoom") -> "RecordStore | None":
    """None where nothing was taken in yet."""
    store = await room.history()
    if store is None:
        return None
    silences = await room.silences()
    if all(silence.until is not None for silence in silences):
        return store
    # Only now: nothing is off nearly always.
    from everkept.app.workspaces import key_of_workspace
    from everkept.families.history.importing.quiet import Quiet
    from everkept.families.history.search.folder_filter import folders_of, without

    folders = await folders_of(store)
    return without(store, folders, Quiet(silences, key_of_workspace).hidden(folders))
