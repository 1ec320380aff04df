"""Only a token that the API server issued for our audience and bound to the reporting pod is accepted.

Some tokens here are signed with the cluster's own key although the API server would not issue them, such as an expired
one: the API server issues none for less than ten minutes.
"""

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from activity_worker.contract import TOKEN_AUDIENCE
from tests.faults.fault_cluster import TOKENS
from tests.hostile.workers.attacked_cluster import NEIGHBOUR, TENANT, AttackedCluster, Pod
from tests.hostile.workers.background import Background
from tests.hostile.workers.oracle import check, neighbours
from tests.hostile.workers.wire import REPORT, Answer, request, say
from tests.servers.control_plane import ISSUER

Claims = dict[str, Any]


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def signed(head: Claims, claims: Claims, key: rsa.RSAPrivateKey) -> str:
    """Return a token like the API server's, signed with `key`."""
    text = f"{encoded(json.dumps(head).encode())}.{encoded(json.dumps(claims).encode())}"
    return f"{text}.{encoded(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def cluster_key(here: AttackedCluster) -> rsa.RSAPrivateKey:
    """Return the API server's signing key."""
    key = serialization.load_pem_private_key((here.cluster.folder / "service-accounts.key").read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def parts(token: str) -> tuple[Claims, Claims]:
    head, claims, _ = token.split(".")
    return decoded(head), decoded(claims)


def garbage(_: AttackedCluster, token: str) -> str:
    return "x" * len(token)


def truncated(_: AttackedCluster, token: str) -> str:
    return token[:-40]


def unsigned(_: AttackedCluster, token: str) -> str:
    _head, claims = parts(token)
    return f"{encoded(json.dumps({'alg': 'none'}).encode())}.{encoded(json.dumps(claims).encode())}."


def of_another_key(_: AttackedCluster, token: str) -> str:
    return signed(*parts(token), rsa.generate_private_key(public_exponent=65537, key_size=2048))


def signed_with_the_public_key(here: AttackedCluster, token: str) -> str:
    head, claims = parts(token)
    shape = serialization.PublicFormat.SubjectPublicKeyInfo
    secret = cluster_key(here).public_key().public_bytes(serialization.Encoding.PEM, shape)
    text = f"{encoded(json.dumps(head | {'alg': 'HS256'}).encode())}.{encoded(json.dumps(claims).encode())}"
    code = hmac.HMAC(secret, hashes.SHA256())
    code.update(text.encode())
    return f"{text}.{encoded(code.finalize())}"


def with_another_pods_claims(here: AttackedCluster, token: str) -> str:
    return ".".join((token.split(".", maxsplit=1)[0], here.mate.pod.token.split(".")[1], token.split(".")[2]))


def again(here: AttackedCluster, token: str, **changed: Any) -> str:
    head, claims = parts(token)
    return signed(head, claims | changed, cluster_key(here))


def expired(here: AttackedCluster, token: str) -> str:
    return again(here, token, exp=int(time.time()) - 60)


def of_tomorrow(here: AttackedCluster, token: str) -> str:
    return again(here, token, nbf=int(time.time()) + 86_400)


def of_another_issuer(here: AttackedCluster, token: str) -> str:
    return again(here, token, iss="https://elsewhere.example")


def for_the_api_server(here: AttackedCluster, token: str) -> str:
    return again(here, token, aud=[ISSUER])


def for_another_audience(here: AttackedCluster, token: str) -> str:
    return again(here, token, aud=["activitypools.dev/operator/other"])


def for_no_audience(here: AttackedCluster, token: str) -> str:
    return again(here, token, aud=[])


def of_a_pod_that_was_before(here: AttackedCluster, token: str) -> str:
    pod = parts(token)[1]["kubernetes.io"]["pod"] | {"uid": "00000000-0000-0000-0000-000000000000"}
    return again(here, token, **{"kubernetes.io": parts(token)[1]["kubernetes.io"] | {"pod": pod}})


def nested(_: AttackedCluster, token: str) -> str:
    return f"{token.split('.', maxsplit=1)[0]}.{encoded(b'[' * 8000)}.x"


def endless(_: AttackedCluster, token: str) -> str:
    claims = json.dumps({"aud": [TOKEN_AUDIENCE], "exp": 0}).replace("0}", "9" * 5000 + "}")
    return f"{token.split('.', maxsplit=1)[0]}.{encoded(claims.encode())}.x"


def that_never_ends(_: AttackedCluster, token: str) -> str:
    claims = json.dumps({"aud": [TOKEN_AUDIENCE], "exp": float("nan")})
    return f"{token.split('.', maxsplit=1)[0]}.{encoded(claims.encode())}.{token.split('.')[2]}"


def of_an_administrator(_: AttackedCluster, __: str) -> str:
    return TOKENS["test"]


def none(_: AttackedCluster, __: str) -> str:
    return ""


FORGED: tuple[Callable[[AttackedCluster, str], str], ...] = (
    garbage, truncated, unsigned, of_another_key, signed_with_the_public_key, with_another_pods_claims, expired,
    of_tomorrow, of_another_issuer, for_the_api_server, for_another_audience, for_no_audience, of_a_pod_that_was_before,
    nested, endless, that_never_ends, of_an_administrator, none,
)  # fmt: skip


def tell(here: AttackedCluster, pod: Pod, token: str, path: str = REPORT, extra: bytes = b"") -> Answer:
    """Report for a pod with a token."""
    with here.address.connect() as line:
        line.send(request(say(pod, next(here.sequence)), token, path, extra))
        return line.answer()


def known(here: AttackedCluster, background: Background) -> float:
    """Return the number of workers that report, by the operator's metrics."""
    text = background.do(here.metrics())
    lines = [line for line in text.splitlines() if line.startswith("activitypool_workers{")]
    assert lines
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'state="pending"' not in line)


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_forged_token_is_refused(here: AttackedCluster, forge: Callable[[AttackedCluster, str], str]) -> None:
    answer = tell(here, here.attacker, forge(here, here.attacker.token))

    assert answer.status == 401, answer
    assert answer.error
    assert answer.headers["connection"] == "close"


def test_token_is_valid_for_its_own_pod_only(here: AttackedCluster) -> None:
    mate, stranger = here.mate.pod, here.honest.pod
    assert tell(here, mate, here.attacker.token).error == "podUid: the token is bound to another pod"
    assert tell(here, stranger, here.attacker.token).error == "podUid: the token is bound to another pod"
    other = Pod(NEIGHBOUR, here.attacker.name, here.attacker.uid, NEIGHBOUR, "")
    answer = tell(here, other, here.attacker.token)
    assert (answer.status, answer.error) == (403, "namespace, pool: this pod is a worker of another pool")


def test_token_outside_the_authorization_header_is_ignored(here: AttackedCluster) -> None:
    token = here.attacker.token
    for path, extra in (
        (f"{REPORT}?access_token={token}&token={token}", b""),
        (REPORT, f"Cookie: token={token}; Authorization=Bearer%20{token}\r\n".encode()),
        (REPORT, f"X-Forwarded-Authorization: Bearer {token}\r\nProxy-Authorization: Bearer {token}\r\n".encode()),
        (REPORT, f"Authorization: Basic {token}\r\nAuthorization: Bearer {token}\r\n".encode()),
    ):
        assert tell(here, here.attacker, "", path, extra).status == 401


def test_service_account_token_without_a_pod_is_refused(here: AttackedCluster, background: Background) -> None:
    unbound = background.do(here.api.token(TENANT, audiences=[TOKEN_AUDIENCE]))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "any"}}
    made = background.do(here.api.call("POST", f"/api/v1/namespaces/{TENANT}/secrets", secret))
    bound = background.do(here.api.token(TENANT, audiences=[TOKEN_AUDIENCE], bound=(made or {}) | {"kind": "Secret"}))
    for token in (unbound, bound):
        answer = tell(here, here.attacker, token)
        assert (answer.status, answer.error) == (401, "the token is not bound to a pod")


def test_labels_or_an_owner_in_another_namespace_make_no_worker(here: AttackedCluster, background: Background) -> None:
    before, workers = background.do(neighbours(here)), known(here, background)
    sets = background.do(here.api.items(f"/apis/apps/v1/namespaces/{NEIGHBOUR}/replicasets"))
    meta = next(raw["metadata"] for raw in sets if raw["metadata"]["name"].startswith(f"{NEIGHBOUR}-"))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": meta["name"], "uid": meta["uid"]}
    labelled = background.do(here.make_pod(TENANT, "labelled", TENANT))
    owned = background.do(here.make_pod(TENANT, "owned", TENANT, owner | {"controller": True}))
    foreign = Pod(NEIGHBOUR, owned.name, owned.uid, NEIGHBOUR, owned.token)

    assert tell(here, labelled, labelled.token).status == 503
    assert tell(here, owned, owned.token).status == 503
    assert tell(here, foreign, owned.token).status in {403, 503}
    assert known(here, background) == workers
    background.do(check(here, before))


def test_token_of_a_deleted_pod_is_refused(here: AttackedCluster, background: Background) -> None:
    pod = background.do(here.make_pod(TENANT, "short-lived", TENANT))
    path = f"/api/v1/namespaces/{TENANT}/pods/{pod.name}"
    background.do(here.api.call("DELETE", path, {"gracePeriodSeconds": 0}))

    assert tell(here, pod, pod.token).status == 401
