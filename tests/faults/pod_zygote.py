"""Operators that find the API server as in a pod: by the environment and a ServiceAccount's files.

`python -m tests.faults.pod_zygote` is the zygote; it changes only the files' location.
"""

import json
import os
from pathlib import Path
from typing import Any

from kubernetes.aio.config import incluster_config

from tests.faults import zygote


def account_folder(log: Path) -> Path:
    """Return the folder with `token`, `ca.crt` and `environment.json` of the operator with this log."""
    return log.with_suffix(".serviceaccount")


def main() -> None:
    """Run the zygote."""
    operate = zygote._operate

    def prepared(asked: dict[str, Any]) -> None:
        folder = account_folder(Path(asked["log"]))
        incluster_config.SERVICE_TOKEN_FILENAME = str(folder / "token")
        incluster_config.SERVICE_CERT_FILENAME = str(folder / "ca.crt")
        os.environ.update(json.loads((folder / "environment.json").read_text()))
        operate(asked)

    zygote._operate = prepared
    zygote.main()


if __name__ == "__main__":
    main()
