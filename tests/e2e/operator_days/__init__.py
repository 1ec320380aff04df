"""Restarts, upgrades and failures of the operator that all tests share: these tests run alone."""
