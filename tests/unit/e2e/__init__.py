"""Tests of the pure parts of the end-to-end tests."""
