"""Task leases that the operator holds: recorded, kept alive, handed over to workers."""
