#!/usr/bin/env bash
# Runs the tests that were built.
cd riak-go-client
RIAK_HOST=127.0.0.1 RIAK_PORT=$PB_PORT ../suite.test -test.v -test.timeout 400s >../results/go.txt 2>&1
