"""Operators as in `tests.faults.zygote` that read their tenancy policy again every second."""

from tests.faults import zygote

zygote.HASTE["activity_operator.policy_file"] = {"LOOK_SECONDS": 1.0}

if __name__ == "__main__":
    zygote.main()
