// Scenarios: concurrent writes are kept side by side until resolved.
'use strict';

const assert = require('assert');
const { fresh, object, texts } = require('./client');

async function bucketWithSiblings(riak) {
  const bucket = fresh('bucket');
  await riak.storeBucketProps({ bucket, allowMult: true });
  return { bucket, key: 'key' };
}

module.exports = {
  async 'writes without a vclock become siblings'(riak) {
    const at = await bucketWithSiblings(riak);
    for (const text of ['one', 'two', 'three']) {
      await riak.storeValue({ ...at, value: object(text) });
    }
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), ['one', 'three', 'two']);
  },

  async 'a write with the vclock of the siblings resolves them'(riak) {
    const at = await bucketWithSiblings(riak);
    await riak.storeValue({ ...at, value: object('one') });
    await riak.storeValue({ ...at, value: object('two') });
    const { vclock } = await riak.fetchValue(at);
    await riak.storeValue({ ...at, vclock, value: object('resolved') });
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), ['resolved']);
  },

  async 'a write with an older vclock stands beside what came since'(riak) {
    const at = await bucketWithSiblings(riak);
    await riak.storeValue({ ...at, value: object('base') });
    const { vclock } = await riak.fetchValue(at);
    await riak.storeValue({ ...at, vclock, value: object('left') });
    await riak.storeValue({ ...at, vclock, value: object('right') });
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), ['left', 'right']);
  },

  async 'siblings do not multiply when writers interleave'(riak) {
    const at = await bucketWithSiblings(riak);
    const seen = [{}, {}];
    for (let round = 0; round < 10; round += 1) {
      const writer = round % 2;
      const answer = await riak.storeValue({
        ...at, ...seen[writer], returnBody: true, value: object(`writer ${writer}`),
      });
      seen[writer] = { vclock: answer.vclock };
      assert.ok(answer.values.length <= 2, `${answer.values.length} siblings`);
    }
  },

  async 'a store returns all siblings on request'(riak) {
    const at = await bucketWithSiblings(riak);
    await riak.storeValue({ ...at, value: object('one') });
    const answer = await riak.storeValue({ ...at, returnBody: true, value: object('two') });
    assert.deepStrictEqual(texts(answer), ['one', 'two']);
  },

  async 'a resolver of the client is given all siblings'(riak) {
    const at = await bucketWithSiblings(riak);
    await riak.storeValue({ ...at, value: object('short') });
    await riak.storeValue({ ...at, value: object('much longer') });
    const longest = (values) => values.reduce((one, other) =>
      (one.getValue().length >= other.getValue().length ? one : other));
    const answer = await riak.fetchValue({ ...at, conflictResolver: longest });
    assert.deepStrictEqual(texts(answer), ['much longer']);
  },

  async 'a write beside a delete survives it'(riak) {
    const at = await bucketWithSiblings(riak);
    await riak.storeValue({ ...at, value: object('base') });
    const { vclock } = await riak.fetchValue(at);
    await riak.storeValue({ ...at, value: object('unseen') });
    await riak.deleteValue({ ...at, vclock });
    const answer = await riak.fetchValue(at);
    const alive = answer.values.filter((value) => !value.getIsTombstone());
    assert.deepStrictEqual(texts({ values: alive }), ['unseen']);
  },

  async 'without siblings the last write wins'(riak) {
    const bucket = fresh('bucket');
    await riak.storeBucketProps({ bucket, allowMult: false });
    const at = { bucket, key: 'key' };
    await riak.storeValue({ ...at, value: object('one') });
    await riak.storeValue({ ...at, value: object('two') });
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), ['two']);
  },
};
