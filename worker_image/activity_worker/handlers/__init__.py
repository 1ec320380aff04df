"""A user's handlers: how they are declared, found, checked at the start, and called."""
