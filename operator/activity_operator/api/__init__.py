"""The ActivityPool resource: spec, status, conditions, and the CRD made from them."""

GROUP = "activitypools.dev"
VERSION = "v1alpha1"
KIND = "ActivityPool"
PLURAL = "activitypools"
