#!/usr/bin/env bash
# Builds the tests. Neither repository has a module file, and the examples want a module that cannot be had.
set -euo pipefail
export GOPATH=$CACHE/go GOCACHE=$CACHE/go-build GOFLAGS=-modcacherw
cp "$SUITE/backoff.mod" backoff/go.mod
cd riak-go-client
rm -r examples
cp "$SUITE/client.mod" go.mod
cp "$SUITE/client.sum" go.sum
go test -c -vet=off -tags integration -o ../suite.test .
