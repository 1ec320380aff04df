//go:build tools

// Package tools names the cluster maker that is used where a Docker engine answers.
package tools

import _ "sigs.k8s.io/kind"
