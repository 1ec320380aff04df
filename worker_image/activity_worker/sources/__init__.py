"""One file a source: where leases come from."""
