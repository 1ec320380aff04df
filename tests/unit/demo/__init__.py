"""Tests of the local cluster's pure parts."""
