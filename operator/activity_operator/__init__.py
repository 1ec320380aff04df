"""The operator: it watches ActivityPools and keeps the right number of workers."""
