"""The messages and calls of the taskbroker protocol, made from `taskbroker.proto` at import."""
