"""A file of the user with the name of a module that the runtime imports."""

raise RuntimeError("imported by its name: activity_worker")
