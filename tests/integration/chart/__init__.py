"""The Helm chart, rendered by Helm itself; no cluster is needed."""
