"""Tests of what the demo says of itself: its verdict, and what it shows."""
