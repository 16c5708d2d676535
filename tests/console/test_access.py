import pytest

from everkept.console.access import CODE_SECONDS, IDLE_SECONDS, MAX_CODES, MAX_SECONDS, MAX_SESSIONS, ConsoleAccess


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(clock: Clock) -> ConsoleAccess:
    return ConsoleAccess(clock)


def begin(access: ConsoleAccess) -> str:
    token = access.redeem_code(access.create_code())
    assert token is not None
    return token


def test_a_code_begins_one_session(access: ConsoleAccess) -> None:
    code = access.create_code()
    token = access.redeem_code(code)
    assert token is not None
    assert access.check_token(token)
    assert access.redeem_code(code) is None
    assert access.redeem_code("") is None


def test_a_code_is_void_after_a_minute(access: ConsoleAccess, clock: Clock) -> None:
    early, late = access.create_code(), access.create_code()
    clock.now += CODE_SECONDS - 1
    assert access.redeem_code(early) is not None
    clock.now += 1
    assert access.redeem_code(late) is None


def test_a_session_ends_if_it_is_not_used(access: ConsoleAccess, clock: Clock) -> None:
    used, idle = begin(access), begin(access)
    clock.now += IDLE_SECONDS - 1
    assert access.check_token(used)
    # A page that only watches does not keep its session.
    assert access.check_token(idle, is_use=False)
    clock.now += 1
    assert access.check_token(used)
    assert not access.check_token(idle)


def test_a_session_ends_even_if_it_is_used(access: ConsoleAccess, clock: Clock) -> None:
    token, end = begin(access), clock.now + MAX_SECONDS
    while clock.now + IDLE_SECONDS / 2 < end:
        clock.now += IDLE_SECONDS / 2
        assert access.check_token(token)
    clock.now = end
    assert not access.check_token(token)


def test_a_locked_session_is_over(access: ConsoleAccess) -> None:
    token, other = begin(access), begin(access)
    access.end_session(token)
    assert not access.check_token(token)
    assert access.check_token(other)


def test_the_oldest_give_way_to_the_newest(access: ConsoleAccess) -> None:
    codes = [access.create_code() for _ in range(MAX_CODES + 1)]
    assert access.redeem_code(codes[0]) is None
    tokens = [begin(access) for _ in range(MAX_SESSIONS + 1)]
    assert not access.check_token(tokens[0])
    assert access.check_token(tokens[1])
