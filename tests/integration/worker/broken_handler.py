"""A module that does not import."""

raise RuntimeError("the database is not there")
