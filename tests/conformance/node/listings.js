// Scenarios: listings, streamed and whole.
'use strict';

const assert = require('assert');
const { fresh, object } = require('./client');

const KEYS = 500;

async function bucketWithKeys(riak, bucketType) {
  const bucket = fresh('bucket');
  const keys = [];
  for (let number = 0; number < KEYS; number += 1) {
    keys.push(`key-${String(number).padStart(4, '0')}`);
  }
  await Promise.all(keys.map((key) =>
    riak.storeValue({ bucketType, bucket, key, value: object(key) })));
  return { bucket, keys };
}

module.exports = {
  async 'all keys of a bucket are listed, in one answer'(riak) {
    const { bucket, keys } = await bucketWithKeys(riak, 'default');
    const answer = await riak.listKeys({ bucket, stream: false });
    assert.deepStrictEqual([...answer.keys].sort(), keys);
  },

  async 'all keys of a bucket are listed, as a stream'(riak) {
    const { bucket, keys } = await bucketWithKeys(riak, 'plain');
    const messages = await riak.streamKeys({ bucketType: 'plain', bucket });
    assert.deepStrictEqual(messages.flatMap((message) => message.keys).sort(), keys);
  },

  async 'deleted keys are not listed'(riak) {
    const { bucket, keys } = await bucketWithKeys(riak, 'default');
    await Promise.all(keys.slice(10).map((key) => riak.deleteValue({ bucket, key })));
    const answer = await riak.listKeys({ bucket, stream: false });
    assert.deepStrictEqual([...answer.keys].sort(), keys.slice(0, 10));
  },

  async 'a bucket that nobody wrote to has no keys'(riak) {
    const answer = await riak.listKeys({ bucket: fresh('bucket'), stream: false });
    assert.deepStrictEqual(answer.keys, []);
  },

  async 'buckets of a type are listed, whole and as a stream'(riak) {
    const bucketType = 'plain';
    const buckets = [fresh('bucket'), fresh('bucket'), fresh('bucket')];
    for (const bucket of buckets) {
      await riak.storeValue({ bucketType, bucket, key: 'key', value: object('value') });
    }
    const whole = (await riak.listBuckets({ bucketType, stream: false })).buckets;
    const messages = await riak.streamBuckets({ bucketType });
    const parts = messages.flatMap((message) => message.buckets);
    for (const bucket of buckets) {
      assert.ok(whole.includes(bucket), `${bucket} is missing`);
      assert.ok(parts.includes(bucket), `${bucket} is missing in the stream`);
    }
    assert.strictEqual(new Set(whole).size, whole.length, 'a bucket is listed twice');
  },

  async 'buckets of another type are not listed'(riak) {
    const bucket = fresh('bucket');
    await riak.storeValue({ bucketType: 'plain', bucket, key: 'key', value: object('value') });
    const answer = await riak.listBuckets({ stream: false });
    assert.ok(!answer.buckets.includes(bucket));
  },
};
