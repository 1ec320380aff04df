"""Operators that find the API server as in a pod: by the environment and a ServiceAccount's files.

`python -m tests.faults.forked_pod_operators` is the process that operators are forked from.
It changes only the files' location.
"""

import json
import os
from pathlib import Path
from typing import Any

from kubernetes.aio.config import incluster_config

from tests.faults import forked_operators


def account_folder(log: Path) -> Path:
    """Return the folder with `token`, `ca.crt` and `environment.json` of the operator with this log."""
    return log.with_suffix(".serviceaccount")


def main() -> None:
    """Fork operators until the input ends."""
    operate = forked_operators._operate

    def prepared(asked: dict[str, Any]) -> None:
        folder = account_folder(Path(asked["log"]))
        incluster_config.SERVICE_TOKEN_FILENAME = str(folder / "token")
        incluster_config.SERVICE_CERT_FILENAME = str(folder / "ca.crt")
        os.environ.update(json.loads((folder / "environment.json").read_text()))
        operate(asked)

    forked_operators._operate = prepared
    forked_operators.main()


if __name__ == "__main__":
    main()
