"""Tests of tests/prepare and of the code that looks up what it installs."""
