"""What workers report, and what they are answered."""
