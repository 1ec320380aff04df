"""Whole scenarios of pools in virtual time: random loads, faults of sources and nodes, hours in seconds. No I/O."""
