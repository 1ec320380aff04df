//go:build tools

// Package tools names the chart installer of the local cluster.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
