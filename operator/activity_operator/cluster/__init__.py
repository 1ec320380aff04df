"""The Kubernetes side: store, queue, election, observe, apply. The only callers of its API."""
