"""Faults between the operator and what it calls: a crash before and after each call, lost events, refused writes."""
