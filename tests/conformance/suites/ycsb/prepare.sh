#!/usr/bin/env bash
# Compiles the binding, and writes down where the classes are that it needs.
set -euo pipefail
cp "$SUITE/pom.xml" .
mvn -B -q -Dmaven.repo.local="$CACHE/maven" compile dependency:build-classpath -Dmdep.outputFile=classpath
