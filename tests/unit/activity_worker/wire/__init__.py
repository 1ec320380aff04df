"""Tests of the HTTP and Redis clients: signatures, credentials, errors, calls."""
