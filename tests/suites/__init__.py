"""Runs every test suite: several at a time, each with its own output file, and a table of the time each took."""
