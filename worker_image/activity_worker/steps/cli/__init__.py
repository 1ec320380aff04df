"""`activity-worker steps`: its arguments, its commands and what they print."""
