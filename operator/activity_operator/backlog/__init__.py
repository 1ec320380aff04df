"""The operator's clients of task sources: one module per kind of source, which polls it or reads its backlog."""
