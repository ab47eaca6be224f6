// Scenarios: many requests at the same time.
'use strict';

const assert = require('assert');
const { fresh, object, texts } = require('./client');

module.exports = {
  async 'two thousand requests at once are all answered, each with its own'(riak) {
    const bucket = fresh('bucket');
    const numbers = Array.from({ length: 1000 }, (_, number) => number);
    await Promise.all(numbers.map((number) =>
      riak.storeValue({ bucket, key: `key ${number}`, value: object(`value ${number}`) })));
    await Promise.all(numbers.map(async (number) => {
      const answer = await riak.fetchValue({ bucket, key: `key ${number}` });
      assert.deepStrictEqual(texts(answer), [`value ${number}`]);
    }));
  },

  async 'writers of one key at once leave one value of theirs'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    const writers = Array.from({ length: 100 }, (_, number) => `writer ${number}`);
    await Promise.all(writers.map((text) => riak.storeValue({ ...at, value: object(text) })));
    const [left, ...others] = texts(await riak.fetchValue(at));
    assert.ok(writers.includes(left));
    assert.deepStrictEqual(others, []);
  },

  async 'of many stores that want to be first, the one that is kept was answered so'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    const attempts = await Promise.allSettled(Array.from({ length: 50 }, (_, number) =>
      riak.storeValue({ ...at, ifNoneMatch: true, value: object(`writer ${number}`) })));
    const [left, ...others] = texts(await riak.fetchValue(at));
    assert.deepStrictEqual(others, []);
    const number = Number(left.split(' ')[1]);
    assert.strictEqual(attempts[number].status, 'fulfilled', left);
  },

  async 'no write of many is lost where siblings are kept'(riak) {
    const bucket = fresh('bucket');
    await riak.storeBucketProps({ bucket, allowMult: true });
    const at = { bucket, key: 'key' };
    const writers = Array.from({ length: 50 }, (_, number) => `writer ${number}`);
    await Promise.all(writers.map((text) => riak.storeValue({ ...at, value: object(text) })));
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), [...writers].sort());
  },
};
