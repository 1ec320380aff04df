"""PURE: the states of an activation in a broker, and what each step of upkeep makes of it."""
