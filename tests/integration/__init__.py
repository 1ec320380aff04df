"""Tests with real servers, processes and API servers."""
