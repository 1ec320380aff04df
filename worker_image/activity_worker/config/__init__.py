"""What can be set from outside: flags and environment variables, read once; and the log's format."""
