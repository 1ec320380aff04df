"""A pool with a server's URL in a Secret, which the operator may read only if a Role allows it."""

from dataclasses import dataclass, field

from tests.e2e.harness import SYSTEM
from tests.e2e.pool import BasePool

KEY = "url"
RBAC = "rbac.authorization.k8s.io"


@dataclass(eq=False)
class SecretPool(BasePool):
    """A pool on a server; `secret` is the name of the Secret with the server's URL."""

    secret: str = field(kw_only=True)

    def reference(self) -> dict[str, str]:
        """Return the `urlSecretRef` of the pool's spec."""
        return {"name": self.secret, "key": KEY}

    def put_url(self, url: str) -> None:
        """Create or change the Secret."""
        self.act()
        metadata = {"name": self.secret, "namespace": self.namespace}
        self.harness.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {KEY: url}})

    def let_operator_read(self) -> None:
        """Bind a Role with `get` on this one Secret to the operator, as the pool's condition proposes."""
        self.act()
        name = f"operator-reads-{self.secret}"
        named = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name, "namespace": self.namespace}}
        rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [self.secret], "verbs": ["get"]}
        self.harness.apply({**named, "kind": "Role", "rules": [rule]})
        role = {"apiGroup": RBAC, "kind": "Role", "name": name}
        operator = {"kind": "ServiceAccount", "name": "activity-operator", "namespace": SYSTEM}
        self.harness.apply({**named, "kind": "RoleBinding", "roleRef": role, "subjects": [operator]})
