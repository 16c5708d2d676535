from collections.abc import Iterator

import pytest

from postgres_server import fresh_schema
from postgres_tables import Tables


@pytest.fixture
def tables() -> Iterator[Tables]:
    made = Tables(fresh_schema())
    yield made
    made.connection.execute(f"DROP SCHEMA {made.schema} CASCADE".encode())
    made.connection.close()
