"""The published implementation of the queues' dialect, in a process of its own that a test controls."""
