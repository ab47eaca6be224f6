#!/usr/bin/env bash
# Starts the node that stands in, and runs the tests. Erlang's own daemon of names gets a port of its own.
export ERL_LIBS=$PWD RIAK_TEST_PBC_1=$PB_PORT ERL_EPMD_PORT=$((PB_PORT - 10000))
rm -rf stand_in stand_in_is_ready
mkdir stand_in
erlc -o stand_in "$SUITE"/stand_in/*.erl
epmd &
daemon=$!
erl -noshell -noinput -boot "$PWD/riak" -name riak@127.0.0.1 -setcookie riak -pa stand_in -s stand_in start &
stand_in=$!
trap 'kill $stand_in $daemon' EXIT
for _ in {1..100}; do
  [ -e stand_in_is_ready ] && break
  sleep 0.1
done
results=$PWD/results
cd riakc/ebin
erl -noshell -eval "
  eunit:test([riakc_pb_socket_tests, riakc_utils_tests, riakc_obj, riakc_map, riakc_datatype],
             [verbose, {report, {eunit_surefire, [{dir, \"$results\"}]}}]), halt()."
