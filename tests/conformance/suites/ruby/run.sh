#!/usr/bin/env bash
# Runs the integration tests; the folder `shim` stands for gems that Debian lacks.
cd riak-ruby-client
printf 'host: 127.0.0.1\npb_port: %s\n' "$PB_PORT" >spec/support/test_client.yml
ruby -I "$SUITE/shim" -I lib -r compat -S rspec --format json --out ../results/rspec.json \
  --tag '~slow' --tag '~time_series' --tag integration spec/integration/yokozuna spec/integration/riak/*_spec.rb \
  spec/integration/riak/crdt spec/integration/riak/protobuffs spec/integration/riak/encodings/{kv,yz}_spec.rb
