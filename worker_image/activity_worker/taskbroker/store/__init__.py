"""Where a broker keeps its activations and dead letters: SQLite or PostgreSQL."""
