import pytest

from everkept.accounts.accounts import Accounts, UnknownAccount
from everkept.accounts.subjects import LinkedSubject, Subjects, UnlinkedSubject
from everkept.core.sessions import Account
from everkept.core.times import read_clock
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import Conflict, InvalidInput, NotFound

ISSUER = "https://login.example"


@pytest.fixture
def library() -> MemoryLibrary:
    return MemoryLibrary()


@pytest.fixture
def accounts(library: MemoryLibrary) -> Accounts:
    return Accounts(library, read_clock)


@pytest.fixture
def subjects(library: MemoryLibrary, accounts: Accounts) -> Subjects:
    return Subjects(library, accounts)


async def test_a_subject_has_the_account_that_the_owner_gave_it(subjects: Subjects) -> None:
    assert isinstance(await subjects.find_account(ISSUER, "7"), UnlinkedSubject)
    assert await subjects.link("Anna", ISSUER, "7") == LinkedSubject(ISSUER, "7", "anna")
    await subjects.link("anna", ISSUER, "8")
    found = await subjects.find_account(ISSUER, "7")
    assert isinstance(found, Account)
    assert (found.name, found.is_peer) == ("anna", False)
    assert await subjects.find_account(ISSUER, "8") == found
    # The same name at another provider is another person.
    assert isinstance(await subjects.find_account("https://other.example", "7"), UnlinkedSubject)
    assert [each.subject for each in await subjects.list()] == ["7", "8"]


async def test_a_subject_has_one_account(accounts: Accounts, subjects: Subjects) -> None:
    await subjects.link("anna", ISSUER, "7")
    with pytest.raises(Conflict):
        await subjects.link("ben", ISSUER, "7")
    assert [user.name for user in await accounts.list_users()] == ["anna"]
    assert await subjects.unlink(ISSUER, "7") == LinkedSubject(ISSUER, "7", "anna")
    assert isinstance(await subjects.find_account(ISSUER, "7"), UnlinkedSubject)
    await subjects.link("ben", ISSUER, "7")
    with pytest.raises(NotFound):
        await subjects.unlink(ISSUER, "8")


async def test_an_account_that_is_removed_takes_its_subjects_along(accounts: Accounts, subjects: Subjects) -> None:
    await subjects.link("anna", ISSUER, "7")
    await subjects.link("ben", ISSUER, "8")
    await accounts.remove_user("anna")
    assert [each.user for each in await subjects.list()] == ["ben"]
    await accounts.create_token("anna", "")  # another person with the same name
    assert isinstance(await subjects.find_account(ISSUER, "7"), UnknownAccount)


@pytest.mark.parametrize("subject", ["", "a\nb", "x" * 256])
async def test_a_subject_that_cannot_be_one_is_refused(subjects: Subjects, subject: str) -> None:
    with pytest.raises(InvalidInput):
        await subjects.link("anna", ISSUER, subject)
    assert await subjects.list() == []
