"""The broker: its calls, its upkeep, its metrics."""
