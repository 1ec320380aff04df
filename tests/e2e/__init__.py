"""End-to-end tests: the installed operator, real pods, and a task service."""
