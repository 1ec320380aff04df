"""The error of a simulation that cannot be run."""


class SimulationError(ValueError):
    """The manifest, the trace or an option cannot be used; the text names it, its value and the fix."""
