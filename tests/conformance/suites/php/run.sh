#!/usr/bin/env bash
# Runs the tests over HTTP.
cd riak-php-client
export RIAK_HOST=127.0.0.1 RIAK_HTTP_PORT=$HTTP_PORT
for kind in functional scenario; do
  phpunit --no-configuration --do-not-cache-result --bootstrap "$SUITE/boot.php" \
    --log-junit "../results/$kind.xml" "tests/$kind"
done
