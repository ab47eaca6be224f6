#!/usr/bin/env bash
# Installs what the client and its tests import, beside them.
set -euo pipefail
cp "$SUITE/package.json" "$SUITE/package-lock.json" .
npm ci --ignore-scripts --no-audit --no-fund --loglevel error --cache "$CACHE/npm"
