#!/usr/bin/env bash
# Runs the integration tests.
cd riak-nodejs-client
RIAK_HOST=127.0.0.1 RIAK_PORT=$PB_PORT node --no-warnings ../node_modules/mocha/bin/_mocha \
  --require test/disable-log --reporter xunit --reporter-options output=../results/mocha.xml --no-colors \
  'test/integration/**/*.js'
