"""Attacks by users, workers and tenants, and how the operator must withstand them."""
