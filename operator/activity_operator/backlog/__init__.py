"""One file a source: how much work waits."""
