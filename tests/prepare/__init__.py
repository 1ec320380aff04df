"""Installs everything: all that the suites, the demo and the benchmarks need on a machine."""
