"""The CEL rules of the optional rules of a pool's size, and their messages."""

from activity_operator.api.rules import Rule, literal

#: `minimum` is not enough: the API server rounds it down to 0 when the value is a whole number such as 0.
SECONDS_PER_TASK = (
    Rule(
        "self >= 0.001",
        "scaling.throughput.secondsPerTask must be at least 0.001; leave it out to have it measured",
    ),
)
_THRESHOLD = "self.scaling.activationThreshold"
_COUNTED = (
    "self.activation.mode == 'CloudWatch' || (has(self.source) && (has(self.source.swf) || has(self.source.redis) || "
    "has(self.source.taskStore)))"
)
NEEDS_COUNT = (
    "needs a count of the waiting tasks: polls of the operator would take the tasks that are to wait. Set "
    "activation.mode CloudWatch, or remove it"
)
NEEDS_ZERO = "has no effect above zero: set minWorkers to 0, or remove it"
#: Rules of the whole spec.
SPEC = (
    Rule(
        f"{_THRESHOLD} == 0 || {_COUNTED}",
        f"scaling.activationThreshold {NEEDS_COUNT}",
        f"{literal(f'scaling.activationThreshold %d {NEEDS_COUNT}')}.format([{_THRESHOLD}])",
        ".scaling.activationThreshold",
    ),
    Rule(
        f"{_THRESHOLD} == 0 || (self.minWorkers == 0 && self.scaling.idleWorkers == 0)",
        f"scaling.activationThreshold {NEEDS_ZERO}",
        "self.minWorkers != 0 ? 'scaling.activationThreshold has no effect with minWorkers %d: set minWorkers to 0, "
        "or remove the threshold'.format([self.minWorkers]) : 'scaling.activationThreshold has no effect with "
        "scaling.idleWorkers %d: remove one of them'.format([self.scaling.idleWorkers])",
        ".scaling.activationThreshold",
    ),
    Rule(
        "self.scaling.idleWorkers <= self.maxWorkers",
        "scaling.idleWorkers must not be greater than maxWorkers; lower it or raise maxWorkers",
        "'scaling.idleWorkers %d is greater than maxWorkers %d; lower it or raise maxWorkers'"
        ".format([self.scaling.idleWorkers, self.maxWorkers])",
        ".scaling.idleWorkers",
    ),
)
