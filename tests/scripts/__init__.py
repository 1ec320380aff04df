"""Checks of the tests' own source that `make lint` runs."""
