"""Tests of durable tasks: the reducer, definitions, calls, metrics."""
