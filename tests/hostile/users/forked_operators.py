"""Operators as in `tests.faults.forked_operators` that read their tenancy policy again every second."""

from tests.faults import forked_operators

forked_operators.HASTE["activity_operator.policy_file"] = {"LOOK_SECONDS": 1.0}

if __name__ == "__main__":
    forked_operators.main()
