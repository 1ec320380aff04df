"""Task leases that the operator holds: it records them, sends their task heartbeats and hands them over to workers."""
