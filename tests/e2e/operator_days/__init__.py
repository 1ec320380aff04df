"""The operator's bad days: these disturb the one operator that all tests share, so they run alone."""
