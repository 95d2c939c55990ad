"""Store the example's data: in SQLite, or in PostgreSQL when ``WAREHOUSE`` is its URL.

Every statement that writes is an upsert, so running it twice changes nothing.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

WAREHOUSE = os.environ.get("WAREHOUSE", "warehouse.sqlite3")

TABLES = """
CREATE TABLE IF NOT EXISTS shop_orders (id INTEGER PRIMARY KEY, at TEXT NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, at TEXT NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS hourly_sales (
    hour TEXT PRIMARY KEY, orders INTEGER NOT NULL, amount INTEGER NOT NULL, run_id TEXT NOT NULL
);
"""

COPY_ORDER = """
INSERT INTO orders (id, at, amount) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET at = excluded.at, amount = excluded.amount
"""

KEEP_SALES = """
INSERT INTO hourly_sales (hour, orders, amount, run_id) VALUES (?, ?, ?, ?)
ON CONFLICT (hour) DO UPDATE
SET orders = excluded.orders, amount = excluded.amount, run_id = excluded.run_id
"""


class Warehouse:
    """A connection to either database; ``?`` stands for a value in both."""

    def __init__(self, connection: Any, placeholder: str) -> None:
        self._connection, self._placeholder = connection, placeholder

    def write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write all rows, or none."""
        cursor = self._connection.cursor()
        cursor.executemany(statement.replace("?", self._placeholder), list(rows))
        self._connection.commit()

    def read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that a query finds."""
        cursor = self._connection.cursor()
        cursor.execute(query.replace("?", self._placeholder), values)
        return [tuple(row) for row in cursor.fetchall()]

    def create_tables(self) -> None:
        """Create the tables that are missing."""
        cursor = self._connection.cursor()
        for statement in filter(str.strip, TABLES.split(";")):
            cursor.execute(statement)
        self._connection.commit()


@contextmanager
def open_warehouse(url: str = WAREHOUSE) -> Iterator[Warehouse]:
    """Open the warehouse, with its tables."""
    if url.startswith("postgresql://"):
        import psycopg

        connection: Any = psycopg.connect(url)
        warehouse = Warehouse(connection, "%s")
    else:
        connection = sqlite3.connect(url, timeout=30)
        warehouse = Warehouse(connection, "?")
    try:
        warehouse.create_tables()
        yield warehouse
    finally:
        connection.close()
