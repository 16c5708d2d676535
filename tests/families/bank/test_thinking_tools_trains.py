from everkept.families.bank.thinking_tools import MAX_BRANCHES, ThoughtTrains


def test_trains_are_kept_apart_by_session_and_name() -> None:
    trains = ThoughtTrains()
    trains.add_step("one", None, None)
    trains.add_step("one", "a", None)
    assert trains.add_step("one", None, None).length == 2
    assert trains.add_step("two", None, None).length == 1


def test_one_or_all_of_a_session_are_forgotten() -> None:
    trains = ThoughtTrains()
    for name in (None, "a", "b"):
        trains.add_step("one", name, None)
    trains.add_step("two", "a", None)
    assert trains.forget("one", "a") == 1
    assert trains.forget("one", None) == 2
    assert trains.forget("one", None) == 0
    assert trains.add_step("two", "a", None).length == 2


def test_only_so_much_is_kept() -> None:
    trains = ThoughtTrains(most=2)
    for name in ("a", "b", "a", "c"):
        trains.add_step("one", name, None)
    assert trains.add_step("one", "a", None).length == 3
    assert trains.add_step("one", "b", None).length == 1
    for number in range(MAX_BRANCHES + 4):
        trains.add_step("one", "b", str(number))
    train = trains.add_step("one", "b", str(MAX_BRANCHES + 4))
    assert len(train.branches) == MAX_BRANCHES
    assert str(MAX_BRANCHES + 4) in train.branches
