from pathlib import Path

from everkept.core.records import Where
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.families.history.model import TURN
from everkept.families.history.search.surroundings import surroundings
from telling import tell
from watching import watched


async def test_what_stands_around_a_page_of_hits_is_read_in_two_short_questions(
    tmp_path: Path,
) -> None:
    with watched() as watch:
        library = SqliteLibrary(tmp_path)
        store = await library.history()
        for number in range(10):
            await tell(store, f"s{number}", *(f"Turn {turn} of {number}" for turn in range(8)))
        hits = await store.scan(Where(kinds=(TURN,)), limit=80)
        watch.begin()
        around = await surroundings(store, hits[5::8])
        assert len(watch.questions) == 2
        assert watch.elsewhere == []
        await library.close()
    assert len(around.conversations) == 10
    assert {len(turns) for turns in around.turns.values()} == {7}
