// The message of a check that fails: the actual and the expected value.
'use strict';

function fail(what, got, expected) {
  throw new Error(`${what}: got ${JSON.stringify(got)}, expected ${JSON.stringify(expected)}`);
}

function equal(got, expected, what) {
  if (JSON.stringify(got) !== JSON.stringify(expected)) fail(what, got, expected);
}

function near(got, expected, tolerance, what) {
  if (!(Math.abs(got - expected) <= tolerance)) fail(`${what} (within ${tolerance})`, got, expected);
}

function holds(condition, what) {
  if (!condition) throw new Error(what);
}

module.exports = { equal, near, holds };
