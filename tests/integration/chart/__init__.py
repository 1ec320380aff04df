"""The Helm chart, rendered by Helm; no cluster is needed."""
