"""The published client of taskbroker as a peer, in an environment of its own: its licence does not fit ours."""
