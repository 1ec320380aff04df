"""The checks of the tests' own source."""
