#!/usr/bin/env bash
# Compiles the client and its tests. From Java 11 on, jaxb is no part of Java any more.
set -euo pipefail
jaxb='<dependency><groupId>javax.xml.bind</groupId><artifactId>jaxb-api</artifactId><version>2.3.1</version></dependency>'
sed "s|^    <dependencies>|&$jaxb|" riak-java-client/pom.xml >riak-java-client/pom17.xml
bash "$SUITE/maven.sh" test-compile
