"""The Kubernetes side of the operator: API client, store, queue, election, observing and applying."""
