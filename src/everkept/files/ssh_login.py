"""Logging in to an SSH server: known host keys only, and an answer in words when it fails."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import asyncssh

from everkept.errors import InvalidInput, Refused, Unavailable
from everkept.files.ssh_server import USUAL_PORT, SshOptions, SshPlace
from everkept.values import Value

_SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
_SIGNS_OF_LIFE = 3  # without an answer, before a connection counts as lost

# Its sentences are for those who write SSH clients; ours are in the errors.
logging.getLogger("asyncssh").setLevel(logging.CRITICAL)


async def log_in(place: SshPlace, options: SshOptions) -> asyncssh.SSHClientConnection:
    """A connection to a server whose key is known.

    Raises Refused for a host key or a login that is not accepted, InvalidInput for a key file that
    cannot be used, and Unavailable when the server cannot be reached.
    """
    login = await asyncio.to_thread(_prepared, place, options)
    try:
        async with asyncio.timeout(options.connect_seconds):
            return await asyncssh.connect(**login.arguments)
    except TimeoutError:
        raise Unavailable(
            f"{place} did not answer within {options.connect_seconds:g} seconds.", host=place.host
        ) from None
    except asyncssh.HostKeyNotVerifiable:
        raise login.host_keys.refusal(place) from None
    except asyncssh.KeyExchangeFailed as error:
        # A host is asked for keys of the kinds that are known of it, and may have others now.
        if "host key" in error.reason and login.host_keys.is_known:
            raise login.host_keys.refusal(place) from None
        raise _failed(place, error.reason) from None
    except (asyncssh.PermissionDenied, asyncssh.IllegalUserName):
        raise _not_accepted(place, options, login.key_is_encrypted) from None
    except asyncssh.Error as error:
        raise _failed(place, error.reason) from None
    except OSError as error:
        raise _failed(place, error.strerror or str(error)) from None


class _HostKeys(asyncssh.SSHKnownHosts):
    """The keys of a user's files, and what a server showed that they do not hold."""

    def __init__(self, files: Sequence[Path], reached: asyncssh.SSHClientConnectionOptions) -> None:
        super().__init__()
        self.is_known = False
        self.fingerprint: str | None = None
        self._file = files[0]
        self._reached = reached
        for file in files:
            if file.is_file():
                self.load(file.read_text(encoding="utf-8", errors="replace"))

    def match(self, host: str, addr: str, port: int | None) -> Any:
        found = super().match(host, addr, port)
        self.is_known = any(found)
        return found

    def refusal(self, place: SshPlace) -> Refused:
        entry = self._entry()
        accept = self._way_to_accept(place)
        named = place.host if place.host == self._reached.host else f"{place.host} ({entry})"
        shown = f" {self.fingerprint}" if self.fingerprint else ""
        facts = {"host": place.host, "known_hosts": str(self._file)}
        if self.fingerprint:
            facts["fingerprint"] = self.fingerprint
        if self.is_known:
            return Refused(
                f"The key{shown} of the host {named} is not one that is known of it:"
                " it was changed, or another machine answers in its place.",
                hint="Ask whoever runs the host. Only where the new key is right, forget the old"
                f' one with `ssh-keygen -R "{entry}" -f "{self._file}"` and accept the new one'
                f" with `{accept}`.",
                **facts,
            )
        return Refused(
            f"The host {named} is not known, so its key{shown} is not trusted.",
            hint="Compare the fingerprint with the host's own, and accept the key with"
            f" `{accept}`.",
            **facts,
        )

    def _entry(self) -> str:
        """As `known_hosts` names the server, whatever the user's configuration calls it."""
        reached = self._reached
        if reached.host_key_alias:
            return reached.host_key_alias
        return reached.host if reached.port == USUAL_PORT else f"[{reached.host}]:{reached.port}"

    def _way_to_accept(self, place: SshPlace) -> str:
        reached = self._reached
        if reached.host_key_alias or reached.tunnel or reached.proxy_command:
            # ssh-keyscan knows neither another name for the key nor a way through other hosts.
            port = "" if place.port is None else f" -p {place.port}"
            return f'ssh -o UserKnownHostsFile="{self._file}"{port} {place.user}@{place.host}'
        port = "" if reached.port == USUAL_PORT else f" -p {reached.port}"
        return f'ssh-keyscan{port} {reached.host} >> "{self._file}"'


class _Client(asyncssh.SSHClient):
    """Is asked about keys that are not known, and trusts none of them."""

    def __init__(self, host_keys: _HostKeys) -> None:
        self._host_keys = host_keys

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        self._host_keys.fingerprint = key.get_fingerprint()
        return False

    validate_host_ca_key = validate_host_public_key


class _Login(Value):
    arguments: dict[str, Any]
    host_keys: _HostKeys
    key_is_encrypted: bool


def _prepared(place: SshPlace, options: SshOptions) -> _Login:
    key_is_encrypted = options.key is not None and _is_encrypted(options.key)
    arguments: dict[str, Any] = {
        "host": place.host,
        "username": place.user,
        "preferred_auth": ["publickey"],
        "keepalive_interval": options.keepalive_seconds,
        "keepalive_count_max": _SIGNS_OF_LIFE,
        "agent_forwarding": False,
    }
    if place.port is not None:
        arguments["port"] = place.port
    if options.config is not None:
        arguments["config"] = [str(options.config)]
    if options.key is not None:
        arguments |= {"client_keys": [str(options.key)], "ignore_encrypted": True}
        # Servers hang up after a few keys, so those of the agent would use up the tries.
        if not key_is_encrypted:
            arguments["agent_path"] = None
    try:
        settings = asyncssh.SSHClientConnectionOptions(**arguments)
    except (ValueError, OSError) as error:
        raise InvalidInput(
            f"The SSH configuration for {place} cannot be used: {error}.", host=place.host
        ) from None
    host_keys = _host_keys(options, settings)
    arguments |= {"known_hosts": host_keys, "client_factory": lambda: _Client(host_keys)}
    return _Login(arguments, host_keys, key_is_encrypted)


def _is_encrypted(key: Path) -> bool:
    try:
        asyncssh.read_private_key(str(key))
    except FileNotFoundError:
        raise InvalidInput(f"There is no SSH key {key}.", key=str(key)) from None
    except OSError as error:
        raise InvalidInput(
            f"The SSH key {key} cannot be read: {error.strerror}.", key=str(key)
        ) from None
    except ValueError as error:
        if str(error).startswith("Passphrase"):
            return True
        raise InvalidInput(
            f"{key} holds no private SSH key that can be read.",
            hint="The file that ends in .pub is the public half; the private one is needed.",
            key=str(key),
        ) from None
    return False


def _host_keys(options: SshOptions, settings: asyncssh.SSHClientConnectionOptions) -> _HostKeys:
    """What the user's files say; a configuration that trusts every host is not followed."""
    configured = cast("list[str] | None", settings.known_hosts)
    if options.known_hosts is not None:
        files = [options.known_hosts]
    elif configured:
        files = [Path(name).expanduser() for name in configured]
    else:
        files = [Path.home() / ".ssh" / "known_hosts", _SYSTEM_KNOWN_HOSTS]
    try:
        return _HostKeys(files, settings)
    except (ValueError, OSError):
        shown = ", ".join(map(str, files))
        raise InvalidInput(
            f"The known hosts in {shown} cannot be read.",
            hint="`ssh-keygen -l -f FILE` shows what a file holds, and where it is broken.",
            known_hosts=shown,
        ) from None


def _not_accepted(place: SshPlace, options: SshOptions, key_is_encrypted: bool) -> Refused:
    if options.key is None:
        return Refused(
            f"{place} accepted no SSH key of the agent or of ~/.ssh.",
            hint="Name another one with --ssh-key, or put the public half of yours into"
            " ~/.ssh/authorized_keys over there.",
            host=place.host,
        )
    if key_is_encrypted:
        return Refused(
            f"The SSH key {options.key} has a passphrase, and no agent has it open.",
            hint=f'Give it to the agent with `ssh-add "{options.key}"`.',
            host=place.host,
            key=str(options.key),
        )
    return Refused(
        f"{place} did not accept the SSH key {options.key}.",
        hint=f"Put its public half into ~/.ssh/authorized_keys of {place.user} over there.",
        host=place.host,
        key=str(options.key),
    )


def _failed(place: SshPlace, reason: str) -> Unavailable:
    return Unavailable(f"{place} cannot be reached: {reason}.", host=place.host)
