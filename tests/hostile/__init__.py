"""Users, workers and tenants who mean harm: what they may try, and what must come of it."""
