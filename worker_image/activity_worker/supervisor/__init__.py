"""One worker's process: the life of its slots, its reports to the operator, its probes and metrics."""
