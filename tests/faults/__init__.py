"""Fault injection between the operator and what it calls: crashes around each call, lost events, refused writes."""
