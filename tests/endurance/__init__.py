"""Long runs, for a night or before a release: more of what the suites do a little of."""
