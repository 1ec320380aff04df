"""The watch of the API server: kopf, its credentials, and the check that the watches are alive."""
