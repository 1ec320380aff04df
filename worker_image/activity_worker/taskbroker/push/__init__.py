"""A worker's side of pushes: it gets tasks, reports them in batches, and enters the brokers' worker maps."""
