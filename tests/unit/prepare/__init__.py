"""Tests of tests/prepare, and of what looks for the things that it brings."""
