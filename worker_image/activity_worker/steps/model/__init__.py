"""Definitions, instances and the rules between them: no clock, no I/O."""
