#!/usr/bin/env bash
# Loads records, then runs each workload on them; e, which scans, comes last, since it adds some.
opens=()
for package in java.lang java.nio java.net java.util java.util.concurrent sun.nio.ch; do
  opens+=(--add-opens "java.base/$package=ALL-UNNAMED")
done
client() {
  java "${opens[@]}" -cp "target/classes:$(cat classpath)" site.ycsb.Client -db site.ycsb.db.riak.RiakKVClient \
    -p recordcount=1000 -p operationcount=1000 -p riak.hosts=127.0.0.1 -p riak.port="$PB_PORT" \
    -p riak.strong_consistency=false "$@"
}
client -load -P YCSB/workloads/workloada >results/load.txt
for workload in a b c f d e; do
  client -t -P "YCSB/workloads/workload$workload" >"results/$workload.txt"
done
