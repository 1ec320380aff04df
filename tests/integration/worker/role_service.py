"""The security token service, and the agent of EKS Pod Identity, for the keys of a pod's role."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from activity_worker.wire.signing import Keys

ENDS = "2099-01-01T00:00:00Z"
KEYS = Keys("ASIAROLE", "a secret", "a session")
XML = f"""<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>a secret
</SecretAccessKey><SessionToken>a session</SessionToken><Expiration>{ENDS}</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>""".replace("secret\n", "secret")
JSON = json.dumps({"AccessKeyId": "ASIAROLE", "SecretAccessKey": "a secret", "Token": "a session", "Expiration": ENDS})


class RoleService:
    """The security token service and the agent of Pod Identity on one port."""

    def __init__(self, token_file: Path) -> None:
        self._token_file = token_file
        token_file.write_text("a token of the pod")
        self.status = 200
        self.posted, self.got = XML, JSON
        self.forms: list[dict[str, list[str]]] = []
        self.tokens: list[str] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                service.forms.append(parse_qs(form))
                self._answer(service.posted)

            def do_GET(self) -> None:
                service.tokens.append(self.headers["Authorization"])
                self._answer(service.got)

            def _answer(self, text: str) -> None:
                self.send_response(service.status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def variables(self, kind: str) -> dict[str, str]:
        """Return the variables that EKS sets in a pod, for `web identity` or `pod identity`."""
        if kind == "web identity":
            return {
                "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/worker",
                "AWS_WEB_IDENTITY_TOKEN_FILE": str(self._token_file),
                "AWS_STS_REGIONAL_ENDPOINTS": "regional",
                "AWS_ENDPOINT_URL_STS": self.url,
                "AWS_ROLE_SESSION_NAME": "worker",
            }
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.url}/v1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(self._token_file),
        }


@contextlib.contextmanager
def serving(service: RoleService) -> Iterator[RoleService]:
    """Serve in a thread until the end of the block."""
    thread = threading.Thread(target=service.server.serve_forever)
    thread.start()
    try:
        yield service
    finally:
        service.server.shutdown()
        thread.join()
        service.server.server_close()
