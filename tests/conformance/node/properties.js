// Scenarios: properties of buckets and bucket types, and the places of replicas.
'use strict';

const assert = require('assert');
const { fresh } = require('./client');

module.exports = {
  async 'a bucket has the defaults until it is given others'(riak) {
    const props = await riak.fetchBucketProps({ bucket: fresh('bucket') });
    assert.strictEqual(props.nVal, 3);
    assert.strictEqual(props.allowMult, false);
    assert.strictEqual(props.lastWriteWins, false);
  },

  async 'properties of a bucket are set, read and reset'(riak) {
    const bucket = fresh('bucket');
    const wanted = { nVal: 2, allowMult: true, r: 1, w: 2, dw: 1, notFoundOk: false };
    await riak.storeBucketProps({ bucket, ...wanted });
    const props = await riak.fetchBucketProps({ bucket });
    for (const [name, value] of Object.entries(wanted)) {
      assert.strictEqual(props[name], value, name);
    }
    await riak.resetBucketProps({ bucket });
    const reset = await riak.fetchBucketProps({ bucket });
    assert.strictEqual(reset.nVal, 3);
    assert.strictEqual(reset.allowMult, false);
  },

  async 'setting one property leaves the others'(riak) {
    const bucket = fresh('bucket');
    await riak.storeBucketProps({ bucket, nVal: 2 });
    await riak.storeBucketProps({ bucket, allowMult: true });
    const props = await riak.fetchBucketProps({ bucket });
    assert.strictEqual(props.nVal, 2);
    assert.strictEqual(props.allowMult, true);
  },

  async 'a bucket in a type has properties of its own'(riak) {
    const bucket = fresh('bucket');
    await riak.storeBucketProps({ bucketType: 'plain', bucket, nVal: 1 });
    assert.strictEqual((await riak.fetchBucketProps({ bucketType: 'plain', bucket })).nVal, 1);
    assert.strictEqual((await riak.fetchBucketProps({ bucket })).nVal, 3);
  },

  async 'a made bucket type keeps siblings unless its properties exclude it'(riak) {
    assert.strictEqual((await riak.fetchBucketTypeProps({ bucketType: 'plain' })).allowMult, true);
    const props = await riak.fetchBucketTypeProps({ bucketType: 'no_siblings' });
    assert.strictEqual(props.allowMult, false);
  },

  async 'properties of a bucket type are set and read'(riak) {
    const bucketType = 'plain';
    const before = await riak.fetchBucketTypeProps({ bucketType });
    await riak.storeBucketTypeProps({ bucketType, pw: 1 });
    assert.strictEqual((await riak.fetchBucketTypeProps({ bucketType })).pw, 1);
    const props = await riak.fetchBucketProps({ bucketType, bucket: fresh('bucket') });
    assert.strictEqual(props.pw, 1, 'a bucket follows its type');
    await riak.storeBucketTypeProps({ bucketType, pw: before.pw });
  },

  async 'a bucket type that nobody made has no properties'(riak) {
    await assert.rejects(riak.fetchBucketTypeProps({ bucketType: 'nobody_made_this' }));
  },

  async 'a bucket type shows its data type'(riak) {
    const props = await riak.fetchBucketTypeProps({ bucketType: 'maps' });
    assert.strictEqual(props.dataType, 'map');
  },

  async 'the replicas of a key are reported'(riak) {
    const { preflist } = await riak.fetchPreflist({ bucket: fresh('bucket'), key: 'key' });
    assert.strictEqual(preflist.length, 3);
    for (const replica of preflist) {
      assert.strictEqual(replica.node, 'riak@127.0.0.1');
      assert.strictEqual(replica.primary, true);
    }
  },
};
