from collections.abc import Iterator

import pytest

from postgres_tables import Tables
from postgresing import fresh_schema


@pytest.fixture
def tables() -> Iterator[Tables]:
    made = Tables(fresh_schema())
    yield made
    made.connection.execute(f"DROP SCHEMA {made.schema} CASCADE".encode())
    made.connection.close()
