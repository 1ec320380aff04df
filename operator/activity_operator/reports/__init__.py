"""The report server: it authenticates workers, stores their reports and sends the replies."""
