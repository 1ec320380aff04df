"""Which rights calls need, and which the chart grants."""

from tests.faults.rights import granted, needed

TEMPLATE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: activity-operator
  labels:
    {{- include "operator.labels" . | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [pods, pods/status]
    verbs: [list, watch]
{{- range .Values.secretNamespaces }}
---
kind: Role
metadata:
  name: activity-operator-secrets
  namespace: {{ . }}
rules:
  - apiGroups: [""]
    resources: [secrets]
    verbs: [get]
{{- end }}
"""


def test_only_the_roles_of_the_operator_itself_count() -> None:
    assert granted(TEMPLATE) == {(kind, verb) for kind in ("pods", "pods/status") for verb in ("list", "watch")}


def test_a_call_needs_its_verb_on_its_resource() -> None:
    names = ("PATCH activitypools/status", "POST lease-records", "PUT leases", "LIST pods", "WATCH pods", "DELETE pods")

    assert needed((*names, "AWS GetActivityTask", "worker SendTaskSuccess", "GET discovery")) == {
        ("activitypools/status", "patch"),
        ("secrets", "create"),
        ("leases", "update"),
        ("pods", "list"),
        ("pods", "watch"),
        ("pods", "delete"),
    }


def test_the_chart_of_this_tree_is_read() -> None:
    assert {("deployments", "patch"), ("leases", "update"), ("secrets", "delete")} <= granted()
    assert ("secrets", "watch") not in granted()
