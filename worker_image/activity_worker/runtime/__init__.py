"""Slots: what polls a source, runs a handler on a task, keeps the task alive and concludes it."""
