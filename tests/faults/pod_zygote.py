"""Operators that know the API server as in a pod: from the environment and the files of a ServiceAccount.

`python -m tests.faults.pod_zygote` is the zygote; where the files are is all that it changes.
"""

import json
import os
from pathlib import Path
from typing import Any

from kubernetes.aio.config import incluster_config

from tests.faults import zygote


def account_folder(log: Path) -> Path:
    """Return where the operator with this log finds `token`, `ca.crt` and `environment.json`."""
    return log.with_suffix(".serviceaccount")


def main() -> None:
    """Be the zygote."""
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
