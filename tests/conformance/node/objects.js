// Scenarios: stored objects can be fetched, overwritten and deleted.
'use strict';

const assert = require('assert');
const { fresh, object, texts } = require('./client');

module.exports = {
  async 'the server answers a ping'(riak) {
    assert.strictEqual(await riak.ping(), true);
  },

  async 'the server reports its name and a version of three numbers'(riak) {
    const info = await riak.fetchServerInfo();
    assert.match(info.node, /@/);
    assert.match(info.server_version, /^\d+\.\d+\.\d+/);
  },

  async 'a stored object is fetched as it was stored'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: object('a value') });
    const answer = await riak.fetchValue(at);
    assert.strictEqual(answer.isNotFound, false);
    assert.deepStrictEqual(texts(answer), ['a value']);
    assert.strictEqual(answer.values[0].getContentType(), 'text/plain');
    assert.ok(answer.vclock.length > 0);
  },

  async 'an object of JSON comes back as one'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: { name: 'value', list: [1, 2, 3] } });
    const answer = await riak.fetchValue({ ...at, convertToJs: true });
    assert.deepStrictEqual(answer.values[0].getValue(), { name: 'value', list: [1, 2, 3] });
  },

  async 'a key that nobody wrote is not found'(riak) {
    const answer = await riak.fetchValue({ bucket: fresh('bucket'), key: 'key' });
    assert.strictEqual(answer.isNotFound, true);
    assert.deepStrictEqual(answer.values, []);
  },

  async 'a later value takes the place of an earlier one'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: object('first') });
    const { vclock } = await riak.fetchValue(at);
    await riak.storeValue({ ...at, vclock, value: object('second') });
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), ['second']);
  },

  async 'a deleted object is not found, and its key can be used again'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: object('first') });
    assert.strictEqual(await riak.deleteValue(at), true);
    assert.strictEqual((await riak.fetchValue(at)).isNotFound, true);
    await riak.storeValue({ ...at, value: object('second') });
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), ['second']);
  },

  async 'deleting what is not there is no error'(riak) {
    assert.strictEqual(await riak.deleteValue({ bucket: fresh('bucket'), key: 'key' }), true);
  },

  async 'a delete with the vclock of a fetch deletes what was fetched'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: object('value') });
    const { vclock } = await riak.fetchValue(at);
    await riak.deleteValue({ ...at, vclock });
    assert.strictEqual((await riak.fetchValue(at)).isNotFound, true);
  },

  async 'the marker that a delete leaves is shown on request'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: object('value') });
    await riak.deleteValue(at);
    const answer = await riak.fetchValue({ ...at, returnDeletedVClock: true });
    assert.strictEqual(answer.isNotFound, false);
    assert.strictEqual(answer.values[0].getIsTombstone(), true);
    assert.ok(answer.vclock.length > 0);
  },

  async 'a store without a key is given one'(riak) {
    const bucket = fresh('bucket');
    const first = await riak.storeValue({ bucket, value: object('first') });
    const second = await riak.storeValue({ bucket, value: object('second') });
    assert.ok(first.generatedKey.length > 0);
    assert.notStrictEqual(first.generatedKey, second.generatedKey);
    const answer = await riak.fetchValue({ bucket, key: first.generatedKey });
    assert.deepStrictEqual(texts(answer), ['first']);
  },

  async 'a generated key comes with the body on request'(riak) {
    const bucket = fresh('bucket');
    const answer = await riak.storeValue({ bucket, returnBody: true, value: object('value') });
    assert.ok(answer.generatedKey.length > 0);
    assert.deepStrictEqual(texts(answer), ['value']);
  },

  async 'a store returns the object on request'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    const answer = await riak.storeValue({ ...at, returnBody: true, value: object('value') });
    assert.deepStrictEqual(texts(answer), ['value']);
    const { vclock } = await riak.fetchValue(at);
    assert.deepStrictEqual(answer.vclock, vclock);
  },

  async 'a store returns the object without its value on request'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    const answer = await riak.storeValue({ ...at, returnHead: true, value: object('value') });
    assert.strictEqual(answer.values.length, 1);
    assert.strictEqual(answer.values[0].getValue().length, 0);
    assert.strictEqual(answer.values[0].getContentType(), 'text/plain');
    assert.ok(answer.vclock.length > 0);
  },

  async 'a store returns nothing unless asked'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    const answer = await riak.storeValue({ ...at, value: object('value') });
    assert.deepStrictEqual(answer.values, []);
  },

  async 'a fetch of the head alone leaves the value out'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    const value = object('value').setUserMeta([{ key: 'name', value: 'known' }]);
    await riak.storeValue({ ...at, value });
    const answer = await riak.fetchValue({ ...at, headOnly: true });
    assert.strictEqual(answer.values.length, 1);
    assert.strictEqual(answer.values[0].getValue().length, 0);
    assert.deepStrictEqual(answer.values[0].getUserMeta(), [{ key: 'name', value: 'known' }]);
  },

  async 'an empty value is a value'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: object('') });
    const answer = await riak.fetchValue(at);
    assert.strictEqual(answer.isNotFound, false);
    assert.deepStrictEqual(texts(answer), ['']);
  },

  async 'values of 5 MB are kept byte by byte'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    const bytes = Buffer.alloc(5 * 1024 * 1024);
    for (let position = 0; position < bytes.length; position += 1) {
      bytes[position] = (position * 31 + (position >> 8)) & 0xff;
    }
    await riak.storeValue({ ...at, value: object(bytes) });
    const answer = await riak.fetchValue(at);
    assert.ok(answer.values[0].getValue().equals(bytes));
  },

  async 'keys may be any bytes'(riak) {
    const bucket = fresh('bucket');
    const keys = [
      Buffer.from([0]), Buffer.from([0, 0]), Buffer.from([0xff, 0xfe, 0x80]),
      Buffer.from('a/b?c=d#e f%20'), Buffer.from([0x0a, 0x0d, 0x00, 0x2f]),
    ];
    for (const [index, key] of keys.entries()) {
      await riak.storeValue({ bucket, key, value: object(`value ${index}`) });
    }
    for (const [index, key] of keys.entries()) {
      assert.deepStrictEqual(texts(await riak.fetchValue({ bucket, key })), [`value ${index}`]);
    }
  },

  async 'names of buckets and keys may be of any script'(riak) {
    const at = { bucket: fresh('\u6c34\u074f'), key: '\u00e9\u4e2d\ud83d\ude00' };
    await riak.storeValue({ ...at, value: object('value') });
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), ['value']);
  },

  async 'the same bucket in two types is two buckets'(riak) {
    const bucket = fresh('bucket');
    const plain = { bucketType: 'plain', bucket, key: 'key' };
    await riak.storeValue({ ...plain, value: object('in a type') });
    assert.strictEqual((await riak.fetchValue({ bucket, key: 'key' })).isNotFound, true);
    assert.deepStrictEqual(texts(await riak.fetchValue(plain)), ['in a type']);
  },

  async 'a bucket type that nobody made is refused'(riak) {
    const at = { bucketType: 'nobody_made_this', bucket: 'bucket', key: 'key' };
    await assert.rejects(riak.fetchValue(at), /no_type|nobody_made_this/);
    await assert.rejects(
      riak.storeValue({ ...at, value: object('value') }), /no_type|nobody_made_this/);
  },

  async 'quorums that can be met are met'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, w: 3, dw: 3, pw: 3, value: object('value') });
    assert.deepStrictEqual(texts(await riak.fetchValue({ ...at, r: 3, pr: 3 })), ['value']);
  },

  async 'a quorum larger than the number of copies is refused'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await assert.rejects(riak.storeValue({ ...at, w: 4, value: object('value') }), /n_val|w/i);
    await assert.rejects(riak.fetchValue({ ...at, r: 4 }), /n_val|r/i);
  },
};
