from everkept.app.engines import DeferredLibrary
from everkept.core.library import Condition
from everkept.core.ports import Library
from everkept.engines.memory.library import MemoryLibrary

FAR = Condition("postgres", "remote", place="postgresql://there/team")
NEAR = Condition("postgres", "remote", version="18.4", place="postgresql://there/team")


class Making:
    def __init__(self) -> None:
        self.made: list[Library] = []

    def __call__(self) -> Library:
        self.made.append(MemoryLibrary(condition=NEAR))
        return self.made[-1]


async def test_nothing_is_made_to_tell_what_it_is_or_to_close_it() -> None:
    making = Making()
    library = DeferredLibrary(making, FAR)
    assert library.condition == FAR
    await library.close()
    assert making.made == []


async def test_the_first_question_makes_it_and_all_go_to_the_same_one() -> None:
    making = Making()
    library = DeferredLibrary(making, FAR)
    await library.create("shop", description="about it")
    [made] = making.made
    assert [project.name for project in await library.list_projects()] == ["shop"]
    assert [project.name for project in await made.list_projects()] == ["shop"]
    assert library.condition == NEAR
    await library.close()
    assert len(making.made) == 1
