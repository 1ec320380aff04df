"""The tests: unit, conformance, integration, e2e, bench, and the local cluster they run on."""
