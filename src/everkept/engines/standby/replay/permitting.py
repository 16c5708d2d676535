"""Whether an account may still do what it did while the database was away."""

from everkept.core.accounts import Account
from everkept.core.homes import home_of
from everkept.core.projects import Project
from everkept.core.rights import Rights
from everkept.engines.standby.journal.acts import Act, Commit, CreateProject
from everkept.errors import Refused


class NotPermitted(Refused):
    """Whoever wrote it may not write it any more."""


def expect_there(account: Account, rights: Rights | None) -> Rights:
    """Raises NotPermitted unless the very account that did it is there, with these rights."""
    user = account.name
    if rights is None:
        raise NotPermitted(f"The account {user} was removed meanwhile.", user=user)
    if rights.account.id != account.id:
        raise NotPermitted(
            f"The account {user} was removed meanwhile, and another of that name made.", user=user
        )
    return rights


def expect_permitted(act: Act, project: Project | None, rights: Rights) -> None:
    """Raises NotPermitted. `project` is what the act is about, as the database has it."""
    user = rights.account.name
    if project is None:
        raise NotPermitted(f"The account {user} may not do this.", user=user)
    if (home := home_of(project.name)) is not None:
        is_permitted = home.user == user and isinstance(act, Commit | CreateProject)
    else:
        is_permitted = project.id in (rights.writes if isinstance(act, Commit) else rights.owns)
    if not is_permitted:
        raise NotPermitted(
            f'The account {user} may not write in "{project.name}" any more.',
            user=user,
            project=project.name,
        )
