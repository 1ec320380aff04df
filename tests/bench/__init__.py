"""Speed, as benchmarks: `python -m tests.bench [NAME ...]` measures and prints one table. Nothing here is a test.

A benchmark is a module with `run() -> list[Row]` and one line in `BENCHMARKS` (see `registry`). It is imported only
when it is chosen, so that what one of them needs (a cluster, a peer's packages) does not stop the others.
"""
