#!/usr/bin/env bash
# Installs what the client and its tests import, beside them.
set -euo pipefail
cp "$SUITE/package.json" "$SUITE/package-lock.json" .
npm ci --ignore-scripts --no-audit --no-fund --loglevel error --cache "$CACHE/npm"
# The tests read certificates when they are loaded, and use them with users alone.
mkdir -p riak-nodejs-client/tools/test-ca/certs
touch riak-nodejs-client/tools/test-ca/certs/{riakuser-client-cert.pfx,cacert.pem}
