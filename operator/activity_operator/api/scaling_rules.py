"""The CEL rules of the optional rules of a pool's size, and their messages."""

from activity_operator.api.rules import Rule, literal, quoting

#: `minimum` is not enough: the API server rounds it down to 0 when the value is a whole number such as 0.
SECONDS_PER_TASK = (
    Rule(
        "self >= 0.001",
        "scaling.throughput.secondsPerTask must be at least 0.001; leave it out to have it measured",
    ),
)
_CRON_FIELD = "[-0-9A-Za-z*/,#?]+"
CRON = (
    quoting(
        f"self.matches({literal(f'^{_CRON_FIELD}( {_CRON_FIELD}){{4}}$')})",
        "is no cron expression of five fields; write one such as 0 8 * * 1-5",
    ),
)
TIME_ZONE = (
    quoting(
        f"self.matches({literal('^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$')})",
        "is no time zone; write one such as Europe/Berlin",
    ),
)
NEEDS_TIMES = "needs either startCron and endCron, or startTime and endTime"
NEEDS_LIMIT = "needs minWorkers, maxWorkers or both"
SCHEDULE = (
    Rule(
        "has(self.startCron) == has(self.endCron) && has(self.startTime) == has(self.endTime) && "
        "has(self.startCron) != has(self.startTime)",
        f"a schedule {NEEDS_TIMES}",
        f"'schedule ' + self.name + ' {NEEDS_TIMES}'",
    ),
    Rule(
        "has(self.minWorkers) || has(self.maxWorkers)",
        f"a schedule {NEEDS_LIMIT}",
        f"'schedule ' + self.name + ' {NEEDS_LIMIT}'",
    ),
    Rule(
        "!has(self.minWorkers) || !has(self.maxWorkers) || self.minWorkers <= self.maxWorkers",
        "minWorkers of a schedule must not be greater than its maxWorkers; lower it or raise maxWorkers",
        "'minWorkers %d of schedule %s is greater than its maxWorkers %d; lower it or raise maxWorkers'"
        ".format([self.minWorkers, self.name, self.maxWorkers])",
        ".minWorkers",
    ),
    Rule(
        "!has(self.startTime) || !has(self.endTime) || self.startTime < self.endTime",
        "endTime of a schedule must be after its startTime",
        "'endTime of schedule ' + self.name + ' must be after its startTime'",
        ".endTime",
    ),
)
#: A schedule only moves within the pool's own maxWorkers, which always holds.
_ABOVE = (
    "(has(one.minWorkers) && one.minWorkers > self.maxWorkers) || "
    "(has(one.maxWorkers) && one.maxWorkers > self.maxWorkers)"
)
ABOVE_MAX = "has more workers than the pool's maxWorkers, which always holds; lower it or raise maxWorkers"
_THRESHOLD = "self.scaling.activationThreshold"
_COUNTED = (
    "self.activation.mode == 'CloudWatch' || (has(self.source) && (has(self.source.swf) && "
    "!self.source.swf.pollAtZero || has(self.source.redis) || "
    "has(self.source.taskStore) || has(self.source.taskbroker)))"
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
    Rule(
        f"!has(self.scaling.schedules) || self.scaling.schedules.all(one, !({_ABOVE}))",
        f"a schedule {ABOVE_MAX}",
        # A message with the schedule's name would cost more than the API server allows.
        field=".scaling.schedules",
    ),
    Rule(
        "self.activation.mode != 'None' || has(self.scaling.prometheus) || !has(self.scaling.schedules) || "
        "self.scaling.schedules.all(one, (!has(one.minWorkers) || one.minWorkers > 0) && "
        "(!has(one.maxWorkers) || one.maxWorkers > 0))",
        "activation.mode None needs at least 1 worker in every schedule: nothing would notice work at zero",
        field=".scaling.schedules",
    ),
)
