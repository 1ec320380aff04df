"""The task store: its database, its transactions, and the errors that they raise."""
