module activitypools.dev/tests/cluster/tools/etcd

go 1.25.0
