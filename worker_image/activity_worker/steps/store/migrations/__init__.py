"""Changes of the task store's tables, in order; run when a store is opened."""
