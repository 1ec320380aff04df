"""The client of the wire: signatures, credentials, errors, calls."""
