"""A flow's queue on real Redis servers, and the faults of workers and servers."""
