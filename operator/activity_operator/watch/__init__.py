"""The watch of the API server: kopf, its credentials, and the proof that it is alive."""
