import asyncio

from everkept.core.commits import collect_touched, note_touched


async def test_what_is_touched_within_is_told_once_in_the_order_it_came() -> None:
    async def elsewhere() -> None:
        note_touched(["c", "a"])

    note_touched(["before"])
    with collect_touched() as noted:
        note_touched(["b", None, "a"])
        await asyncio.create_task(elsewhere())
    assert list(noted.ids) == ["b", "a", "c"]


async def test_what_goes_on_afterwards_is_no_part_of_it() -> None:
    is_over = asyncio.Event()

    async def later() -> None:
        await is_over.wait()
        note_touched(["late"])

    with collect_touched() as noted:
        task = asyncio.create_task(later())
    is_over.set()
    await task
    assert not noted.ids
