module activitypools.dev/tests/cluster/tools/helm

go 1.25.0
