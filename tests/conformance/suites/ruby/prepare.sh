#!/usr/bin/env bash
# Nothing is built.
