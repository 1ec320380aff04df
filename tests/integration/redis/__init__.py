"""A queue of a flow on real Redis servers, and all that can happen to it."""
