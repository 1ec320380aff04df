"""Databases, SQLite or PostgreSQL, as the stores of the worker use them: engines, transactions, changes of tables."""
