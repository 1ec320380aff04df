"""PURE: an oracle: it knows the trace, so that no task waits, and it pays for each slot as little as that allows."""

import heapq

from activity_operator.simulate.traces import Trace


def oracle_worker_seconds(trace: Trace, slots: int, start_seconds: float) -> tuple[float, int]:
    """Return the worker-seconds and the starts of slots with which no task waits.

    A slot stays between two tasks if that costs less than another start. Each slot is charged as its share of a pod,
    and maxWorkers does not bind the oracle: it is a bound, not a policy that could run.
    """
    busy: list[tuple[float, int]] = []
    #: Slots without a task by the time of their last one; the one that became free last is used first.
    idle: list[float] = []
    used, starts = 0.0, 0
    for number, task in enumerate(trace.tasks):
        while busy and busy[0][0] <= task.at:
            idle.append(heapq.heappop(busy)[0])
        gap = task.at - idle.pop() if idle else start_seconds
        if gap >= start_seconds:
            # All other idle slots have been idle for longer: none of them is worth its wait.
            idle.clear()
            gap, starts = start_seconds, starts + 1
        used += gap + task.seconds
        heapq.heappush(busy, (task.at + task.seconds, number))
    return used / slots, starts
