"""Empty places on the servers that all tests of a process share, as settings name them."""

import pytest

import postgres_server
import surreal_server

POSTGRES = "postgres"
SERVERS = (pytest.param("server-2", marks=pytest.mark.thorough), "server-3", POSTGRES)
TITLES = {"server-2": "SurrealDB 2.", "server-3": "SurrealDB 3.", POSTGRES: "PostgreSQL 18."}


def named(server: str) -> dict[str, str]:
    """Flags that lead to a place of its own; the password is not among flags."""
    if server == POSTGRES:
        url, namespace = postgres_url(postgres_server.shared().port), postgres_server.fresh_schema()
        user = postgres_server.USER
    else:
        url, namespace = (surreal_server.shared(int(server[-1])).url, surreal_server.fresh_namespace())
        user = surreal_server.USER
    return {"database_url": url, "database_user": user, "namespace": namespace}


def variables(server: str) -> dict[str, str]:
    """The same as variables of the environment, with the password."""
    chosen = {f"EVERKEPT_{name.upper()}": value for name, value in named(server).items()}
    return chosen | password_of(server)


def password_of(server: str) -> dict[str, str]:
    """PostgreSQL trusts whoever asks it from this machine."""
    return {} if server == POSTGRES else {"EVERKEPT_DATABASE_PASSWORD": surreal_server.PASSWORD}


def postgres_url(port: int) -> str:
    """As settings have it, without a user."""
    return f"postgresql://127.0.0.1:{port}/postgres"
