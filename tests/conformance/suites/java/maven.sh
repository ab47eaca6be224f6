#!/usr/bin/env bash
# Runs Maven on the client with the options of both scripts; the arguments are further ones.
set -euo pipefail
opens=""
for package in java.lang java.nio java.net java.util java.util.concurrent sun.nio.ch; do
  opens+="--add-opens java.base/$package=ALL-UNNAMED "
done
exec mvn -B -q -f riak-java-client/pom17.xml -Dmaven.repo.local="$CACHE/maven" -Pitest,default -Djacoco.skip=true \
  -DargLine="$opens" "$@"
