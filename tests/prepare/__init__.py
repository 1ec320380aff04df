"""The one place that installs: all that the suites, the demo and the benchmarks need on a machine."""
