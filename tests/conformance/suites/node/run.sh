#!/usr/bin/env bash
# Runs the integration tests. Those of search fail in their preparation, by errors that nothing awaits: each file has
# a process of its own, since another file's tests would be blamed otherwise.
cd riak-nodejs-client
export RIAK_HOST=127.0.0.1 RIAK_PORT=$PB_PORT
mocha() {
  name=$1
  shift
  node --no-warnings ../node_modules/mocha/bin/_mocha --require test/disable-log --timeout 10000 --no-colors \
    --reporter xunit --reporter-options "output=../results/$name.xml" "$@"
}
mocha others test/integration/client.js 'test/integration/{core,crdt,kv,mapreduce,ts}/*.js'
for file in test/integration/yokozuna/*.js; do
  mocha "$(basename "$file" .js)" "$file"
done
