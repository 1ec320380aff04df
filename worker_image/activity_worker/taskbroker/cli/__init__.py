"""`activity-worker broker` and `activity-worker dead-letters`."""
