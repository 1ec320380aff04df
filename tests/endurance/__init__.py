"""Long runs, for a night or before a release, of what the suites do briefly."""
