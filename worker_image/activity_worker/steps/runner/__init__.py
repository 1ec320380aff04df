"""Runners: they claim due instances, call methods, and record what the calls came to."""
