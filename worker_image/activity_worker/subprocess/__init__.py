"""A slot's handler in a process of its own, and what the supervisor and that process send each other."""
