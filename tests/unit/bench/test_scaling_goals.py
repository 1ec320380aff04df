"""The goals of sizes are judged by the numbers that their texts name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from activity_operator.simulate.results import Result, Sample
from tests.bench import scaling_goals
from tests.bench.scaling_goals import kept, page_part
from tests.bench.scaling_rules import (
    BACKLOG,
    GROWTH,
    STARTS,
    TRACES,
    Case,
    Run,
    Runs,
    as_matrix,
    as_rows,
    as_seeds,
    judge,
)
from tests.bench.scaling_runs import Job, jobs, run_of

START = 3.0
P99_KEDA = "p99 wait beside workers: a fifth of KEDA's"
P99_ZERO = "p99 wait from zero: a start and 15 s"
P99_BEST = "p99 wait: 1.1 times the better of tuned KEDA and KPA"
COST_KEDA = "worker-seconds: 1.1 times KEDA's (heavy: 1.3)"


def run(policy: str, p99: float = 1.0, seconds: float = 100.0, *, trace: str = "steady", seed: int = 1) -> Run:
    return Run(trace, START, seed, policy, p99, seconds, seconds / 50, 0, 0, None, p99)


def peers(trace: str = "steady", keda: float = 50.0, tuned: float = 10.0, kpa: float = 2.0, seed: int = 1) -> list[Run]:
    values = {"keda": keda, "keda-tuned": tuned, "kpa": kpa, "hpa-cpu": 60.0, "oracle": 0.0}
    return [run(policy, p99, trace=trace, seed=seed) for policy, p99 in values.items()]


def case(runs: list[Run], goal: str) -> Case:
    found = [one for one in judge(Runs(runs)) if one.goal == goal]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(("p99", "met"), [(10.0, True), (10.1, False)])
def test_wait_is_judged_beside_a_fifth_of_keda(p99: float, met: bool) -> None:
    assert case([*peers(), run("redis", p99)], P99_KEDA).met is met


def test_tasks_that_met_a_pool_at_zero_may_wait_for_a_start_and_15_seconds() -> None:
    ours = replace(run("redis", 17.9), wait_from_zero=17.9, wait_beside=10.0)

    assert case([*peers(), ours], P99_KEDA).met
    assert case([*peers(), ours], P99_ZERO).met
    assert not case([*peers(), replace(ours, wait_from_zero=18.1)], P99_ZERO).met
    assert not case([*peers(), replace(ours, wait_beside=10.1)], P99_KEDA).met


@pytest.mark.parametrize(("turns", "met"), [(120.0, True), (121.0, False)])
def test_size_may_turn_120_times_an_hour(turns: float, met: bool) -> None:
    assert case([*peers(), replace(run("redis"), turns=turns)], "turns of the size: 120 an hour").met is met


def test_trace_whose_tasks_all_met_workers_has_no_goal_from_zero() -> None:
    assert P99_ZERO not in {one.goal for one in judge(Runs([*peers(), run("redis")]))}


@pytest.mark.parametrize(("kpa", "p99", "met"), [(2.0, 2.2, True), (2.0, 2.3, False), (0.0, 0.1, True)])
def test_wait_is_judged_beside_the_better_of_tuned_keda_and_kpa(kpa: float, p99: float, met: bool) -> None:
    assert case([*peers(kpa=kpa), run("redis", p99)], P99_BEST).met is met


def test_heavy_tasks_may_cost_more_than_others() -> None:
    for trace, met in (("steady", False), ("heavy", True)):
        ours = run("redis", seconds=120.0, trace=trace)
        assert case([*peers(trace), ours], COST_KEDA).met is met


def test_trace_that_max_workers_bounds_has_no_goal_for_its_wait() -> None:
    goals = {one.goal for one in judge(Runs([*peers("cron1000"), run("redis", 99.0, trace="cron1000")]))}

    assert P99_KEDA not in goals
    assert COST_KEDA in goals


def test_seeds_are_judged_by_their_mean() -> None:
    ours = [run("redis", 8.0, seed=1), run("redis", 11.0, seed=2)]

    assert case([*peers(), *peers(seed=2), *ours], P99_KEDA).value == pytest.approx(9.5)


def test_pool_is_judged_beside_the_peers_of_its_seeds() -> None:
    runs = [*peers(), *peers(seed=2, keda=500.0), *peers(seed=3, keda=500.0), run("redis", 12.0)]

    assert case(runs, P99_KEDA).limit == pytest.approx(10.0)


def test_seed_that_one_policy_lacks_is_left_out() -> None:
    lacks_redis = [*peers(), *peers(seed=2), run("redis", 8.0), run("stepFunctions", 9.0)]
    lacks_keda = [*peers(), *peers(seed=2)[1:], run("redis", 8.0), run("redis", 90.0, seed=2)]
    last = run("stepFunctions", 90.0, seed=2)

    assert case([*lacks_redis, last], "p99 wait: Step Functions 1.25 times Redis").value == 9.0
    assert case(lacks_keda, P99_KEDA).value == 8.0


def test_interrupted_task_counts_at_a_seed_that_is_left_out() -> None:
    alone = replace(run("redis", seed=2), interrupted=1)

    assert not case([*peers(), run("redis"), alone], "no interrupted task").met


def test_trace_on_which_no_pool_ran_has_no_row() -> None:
    rows = as_matrix(Runs([*peers(), run("redis"), *peers("heavy")]), START)

    assert [row[0] for row in rows] == ["trace", "steady"]


def test_seeds_of_each_trace_and_what_did_not_run_are_named() -> None:
    three = [one for seed in (1, 2, 3) for one in (*peers(seed=seed), run("redis", seed=seed))]
    sentences = as_seeds(Runs([*three, run("redis", trace="growth"), *peers("heavy")]))

    assert sentences.startswith("Seeds 1, 2 and 3: `steady` (3 s). Seed 1: `growth` (3 s). Not run: ")
    assert "`steady` (30 s), " in sentences
    assert "`heavy` (3 s, 30 s), " in sentences


def test_everything_ran_then_nothing_is_named_as_missing() -> None:
    runs = [
        Run(job.trace, job.start, job.seed, job.policy, 1.0, 1.0, 1.0, 0, 0, None, 1.0)
        for job in jobs((*TRACES, GROWTH, BACKLOG), STARTS, [4])
    ]

    assert as_seeds(Runs(runs)).startswith("Seed 4: `steady` (3 s, 30 s), ")
    assert "Not run" not in as_seeds(Runs(runs))


def test_results_of_other_code_are_left_out(tmp_path: Path) -> None:
    same, other = Job("steady", START, 1, "redis"), Job("steady", START, 2, "redis")
    lines = [json.dumps({"key": key, "run": {}}) for key in (same.key, other.key.rpartition(" ")[0] + " 0123456789ab")]
    (tmp_path / "kept.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    assert kept([other, same], tmp_path / "kept.jsonl") == [same]
    assert kept([same], tmp_path / "absent.jsonl") == []


def test_step_functions_is_judged_beside_redis() -> None:
    runs = [run("redis", 4.0, 100.0), run("stepFunctions", 5.1, 124.0)]

    assert not case(runs, "p99 wait: Step Functions 1.25 times Redis").met
    assert case(runs, "worker-seconds: Step Functions 1.25 times Redis").met


def test_size_that_is_never_wanted_misses_its_goal() -> None:
    never = replace(run("stepFunctions", trace="growth"), reached=None)
    goal = "5 busy workers and 195 more tasks: 200 wanted within 4 s"

    assert not case([never], goal).met
    assert case([replace(never, reached=3.9)], goal).met
    rows = {row.what: row for row in as_rows(judge(Runs([never])))}
    assert rows[goal].met is False
    assert "never (4.00)" in rows[goal].how


def test_each_interrupted_task_misses_the_goal() -> None:
    assert not case([run("redis"), replace(run("redis"), seed=2, interrupted=1)], "no interrupted task").met


def result(samples: list[Sample]) -> Result:
    return Result("p", 1, 0, 0.0, 1.0, 2.0, 10.0, 1.0, 0.0, 1, 1, 0, 0, 0, samples=tuple(samples))


def test_growth_is_timed_from_the_last_of_the_many_tasks() -> None:
    samples = [Sample(100.0, 250, 5, 5, 0), Sample(122.0, 150, 5, 5, 0), Sample(123.0, 200, 5, 5, 0)]

    assert run_of(Job("growth", 3.0, 1, "redis"), result(samples), 600.0).reached == 2.0


def test_steady_size_counts_seconds_above_the_slots_and_the_tasks() -> None:
    early = [Sample(float(at), 99, 99, 1, 0) for at in range(300)]
    late = [Sample(300.0, 26, 26, 20, 0), Sample(301.0, 26, 26, 19, 0), Sample(302.0, 27, 27, 20, 0)]
    backlog = [Sample(303.0, 29, 29, 20, 3)]
    measured = run_of(Job("steady", 3.0, 1, "redis"), result([*early, *late, *backlog]), 400.0)

    assert (measured.above, measured.above_peak) == (3, 1)


def test_waits_are_told_apart_by_the_pool_that_the_task_met() -> None:
    found = replace(result([]), wait_p99_from_zero=4.0, wait_p99_beside_workers=0.5)
    measured = run_of(Job("trickle", 3.0, 1, "redis"), replace(found, reversals_per_hour=9.0), 400.0)

    assert measured.turns == 9.0
    assert (measured.wait_from_zero, measured.wait_beside) == (4.0, 0.5)


def test_each_trace_runs_on_both_sources_and_all_peers() -> None:
    policies = [job.policy for job in jobs(["onoff"], [3.0], [1])]

    assert policies == ["redis", "stepFunctions", "keda", "keda-tuned", "kpa", "hpa-cpu", "oracle"]
    assert {job.first_poll for job in jobs(["backlog"], [3.0], [1])} == {0.0, 20.0, 60.0}


def test_page_has_the_goals_and_a_row_for_each_trace() -> None:
    part = page_part(Runs([*peers(), run("redis", 12.0)]), "bench --kept")

    assert f"| {P99_KEDA} | 0 of 1 | steady, redis, 3 s: 12.00 (10.00) |" in part
    assert "| steady | 50.00 / 2.00 |" in part
    assert part.splitlines()[-1].startswith("`bench --kept`, ")
    assert "Seed 1: `steady` (3 s). Not run: " in part
    assert scaling_goals.insert("a\n<!-- scaling goals -->\nold\n<!-- end -->\nb", part).count("old") == 0
