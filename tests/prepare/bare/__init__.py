"""`make bare`: `make prepare` and a smoke of each suite in a bare Debian: a forgotten install step fails there."""
