module activitypools.dev/tests/cluster/tools/coredns

go 1.25.0
