"""What the worker's benchmarks say of their measurements."""

from tests.bench import worker_heartbeats, worker_throughput
from tests.bench.worker_heartbeats import Outcome
from tests.bench.worker_lateness import Lateness
from tests.bench.worker_processes import Cores, Rate

APART = Cores(server=0, contender=1)


def rates(*per_cpu_second: float) -> list[Rate]:
    return [Rate(per_second=rate / 2, per_cpu_second=rate, server_busy=0.5) for rate in per_cpu_second]


def test_one_disturbed_turn_does_not_decide_and_the_goal_is_on_cpu_time() -> None:
    measured = {
        worker_throughput.LIBRARY: rates(10, 3000, 3100),
        worker_throughput.IMAGE: rates(2000, 2000, 2000),
        worker_throughput.AIOBOTOCORE: rates(1000, 1000, 9000),
        worker_throughput.BOTO3: rates(500, 500, 500),
    }

    made = worker_throughput.rows(measured, APART, "aiobotocore 1")

    assert [(row.against, row.verdict) for row in made] == [
        ("3.00x (goal >= 3x)", "met"),
        ("6.00x (goal >= 3x)", "met"),
        ("2.00x (goal >= 3x)", "missed"),
        ("4.00x (goal >= 3x)", "met"),
    ]
    assert "by the clock 1,500 and 500 /s, 3.00x" in made[0].how


def test_one_late_heartbeat_misses_the_goal_and_a_peers_late_ones_do_not() -> None:
    punctual, late = Outcome(Lateness((0.0, 1.0)), 0), Outcome(Lateness((0.0, 1.01)), 1)

    first = worker_heartbeats.rows(punctual, late, APART, "boto3 1")
    second = worker_heartbeats.rows(late, punctual, APART, "boto3 1")

    assert [row.verdict for row in first[:2]] == ["met", "met"]
    assert [row.verdict for row in second[:2]] == ["missed", "missed"]
    assert first[0].peer == "boto3 threads: 1 of 2"
