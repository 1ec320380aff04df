//go:build tools

// Package tools names the data store of the local cluster.
package tools

import _ "go.etcd.io/etcd/server/v3"
