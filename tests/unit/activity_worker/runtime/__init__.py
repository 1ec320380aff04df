"""Tests of the runtime over a source in memory, in virtual time."""
