from everkept.families.bank.thinking_tools import MOST_BRANCHES, Trains


def test_trains_are_kept_apart_by_session_and_name() -> None:
    trains = Trains()
    trains.step("one", None, None)
    trains.step("one", "a", None)
    assert trains.step("one", None, None).length == 2
    assert trains.step("two", None, None).length == 1


def test_one_or_all_of_a_session_are_forgotten() -> None:
    trains = Trains()
    for name in (None, "a", "b"):
        trains.step("one", name, None)
    trains.step("two", "a", None)
    assert trains.forget("one", "a") == 1
    assert trains.forget("one", None) == 2
    assert trains.forget("one", None) == 0
    assert trains.step("two", "a", None).length == 2


def test_only_so_much_is_kept() -> None:
    trains = Trains(most=2)
    for name in ("a", "b", "a", "c"):
        trains.step("one", name, None)
    assert trains.step("one", "a", None).length == 3
    assert trains.step("one", "b", None).length == 1
    for number in range(MOST_BRANCHES + 4):
        trains.step("one", "b", str(number))
    train = trains.step("one", "b", str(MOST_BRANCHES + 4))
    assert len(train.branches) == MOST_BRANCHES
    assert str(MOST_BRANCHES + 4) in train.branches
