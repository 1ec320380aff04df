"""`make bare`: `make prepare` and a smoke of each suite in a bare Debian, where a missing install step shows."""
