"""Tools of the page about other people: accounts, tokens, grants and the access log. Only the owner may use them."""

from typing import Annotated, Any

from everkept.accounts.access_log import LOG_FOLDER, AccessLog, find_calls, log_owner_command
from everkept.accounts.grants import AccessLevel, revoke_token
from everkept.app.app import App
from everkept.console.owner import require_owner
from everkept.core.projects import Project
from everkept.core.sessions import validate_account_name
from everkept.core.times import format_iso
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, ToolFamily, ToolResult, tool

MAX_CALLS = 500


class TeamPageTools(ToolFamily):
    def __init__(self, app: App) -> None:
        self._app = app

    @tool()
    async def list_team(self) -> ToolResult:
        """List the accounts with their tokens and what each may see. No secret is in the answer."""
        require_owner(self._app)
        accounts, library = self._app.accounts, self._app.library
        owners = await accounts.map_token_users()
        projects = {each.id: each.name for each in await library.list_projects()}
        return ToolResult(
            {
                "accounts": [{"name": each.name, "peer": each.is_peer} for each in await accounts.list_users()],
                "tokens": [
                    {
                        "id": each.id,
                        "label": each.label,
                        "created_at": format_iso(each.created_at),
                        "account": owners[each.id].name if each.id in owners else None,
                    }
                    for each in await library.list_tokens()
                ],
                "grants": [
                    {"account": each.user, "project": projects[each.project_id], "access": each.access}
                    for each in await accounts.list_grants()
                    if each.project_id in projects
                ],
            }
        )

    @tool(Effect.WRITES)
    async def create_account_token(self, account: str, label: Annotated[str, Field(max_length=200)] = "") -> ToolResult:
        """Create a token for an account, and the account if it is missing. The secret is shown only now."""
        require_owner(self._app)
        name = validate_account_name(account)
        with self._log("token", name) as ids:
            made, secret = await self._app.accounts.create_token(name, label)
            ids.append(made.id)
        return ToolResult({"id": made.id, "account": name, "secret": secret})

    @tool(Effect.PERMANENT)
    async def revoke_account_token(self, token_id: str) -> ToolResult:
        """Revoke a token. It stops working immediately."""
        require_owner(self._app)
        owner = (await self._app.accounts.map_token_users()).get(token_id)
        with self._log("token revoke", owner and owner.name, token_id):
            await revoke_token(self._app.library, token_id)
        return ToolResult({"revoked": token_id})

    @tool(Effect.REPEATABLE)
    async def set_access(self, account: str, project: str, access: AccessLevel | None = None) -> ToolResult:
        """Give an account access to a project. Without `access`, take it away."""
        require_owner(self._app)
        accounts = self._app.accounts
        found = await self._app.library.get_project(project)
        name = (await accounts.get_user(account)).name
        with self._log("revoke" if access is None else "grant", name, project=found):
            if access is None:
                await accounts.revoke(name, found)
            else:
                await accounts.grant(name, found, access)
        return ToolResult({"account": name, "project": found.name, "access": access})

    @tool(Effect.PERMANENT)
    async def remove_account(self, account: str) -> ToolResult:
        """Remove an account with its tokens and private data. Its projects become yours."""
        require_owner(self._app)
        name = (await self._app.accounts.get_user(account)).name
        with self._log("account remove", name):
            await self._app.accounts.remove_user(name)
        return ToolResult({"removed": name})

    @tool()
    async def read_access_log(
        self,
        account: str | None = None,
        project: str | None = None,
        limit: Annotated[int, Field(ge=1, le=MAX_CALLS)] = 100,
    ) -> ToolResult:
        """Return the newest calls of accounts, newest first."""
        require_owner(self._app)
        found = find_calls(self._access_log, user=account, project=project, most=limit)
        return ToolResult({"calls": [each.as_json() for each in reversed(found.calls)], "broken": found.broken})

    @property
    def _access_log(self) -> AccessLog:
        return AccessLog(self._app.settings.data_dir / LOG_FOLDER)

    def _log(self, what: str, about: str | None, *ids: str, project: Project | None = None) -> Any:
        return log_owner_command(self._access_log, self._app.clock, what, about, ids=ids, project=project)
