"""What only the person who runs the server may see."""

from everkept.app.app import App
from everkept.core.sessions import get_acting_account
from everkept.errors import Refused


def require_owner(app: App) -> None:
    """Raise Refused if an account is acting, or if the server shows only one project, even to its owner."""
    if get_acting_account() is not None:
        raise Refused("Only the owner of this server can see this.", hint="Ask the owner.")
    only = app.settings.only_project
    if only is not None:
        raise Refused(
            f'This server serves only project "{only}".', hint="Use a server without only_project.", project=only
        )
