#!/usr/bin/env bash
# Runs the integration tests.
rm -rf riak-java-client/target/failsafe-reports
bash "$SUITE/maven.sh" -Dcom.basho.riak.host=127.0.0.1 -Dcom.basho.riak.pbcport="$PB_PORT" \
  -Dcom.basho.riak.yokozuna=false failsafe:integration-test
