"""The report server: who reports, what is reported, and what is replied."""
