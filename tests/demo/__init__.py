"""`make demo`: a real cluster, an emulator, the operator installed with Helm, and a pool that goes 0 -> 10 -> 0."""
