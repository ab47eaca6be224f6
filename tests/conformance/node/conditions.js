// Scenarios: requests that depend on the stored object.
'use strict';

const assert = require('assert');
const { fresh, object, texts } = require('./client');

module.exports = {
  async 'a store if nothing is there succeeds once'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, ifNoneMatch: true, value: object('first') });
    const again = riak.storeValue({ ...at, ifNoneMatch: true, value: object('second') });
    await assert.rejects(again, /match_found/);
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), ['first']);
  },

  async 'a store if nothing is there succeeds after a delete'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: object('first') });
    await riak.deleteValue(at);
    await riak.storeValue({ ...at, ifNoneMatch: true, value: object('second') });
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), ['second']);
  },

  async 'a store if not modified succeeds with the present vclock'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: object('first') });
    const { vclock } = await riak.fetchValue(at);
    await riak.storeValue({ ...at, vclock, ifNotModified: true, value: object('second') });
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), ['second']);
  },

  async 'a store if not modified is refused with an older vclock'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: object('first') });
    const { vclock } = await riak.fetchValue(at);
    await riak.storeValue({ ...at, vclock, value: object('second') });
    const late = riak.storeValue({ ...at, vclock, ifNotModified: true, value: object('third') });
    await assert.rejects(late, /modified/);
    assert.deepStrictEqual(texts(await riak.fetchValue(at)), ['second']);
  },

  async 'a store if not modified is refused where nothing is'(riak) {
    const bucket = fresh('bucket');
    await riak.storeValue({ bucket, key: 'other', value: object('value') });
    const { vclock } = await riak.fetchValue({ bucket, key: 'other' });
    const store = riak.storeValue({
      bucket, key: 'key', vclock, ifNotModified: true, value: object('value'),
    });
    await assert.rejects(store, /notfound/);
  },

  // The client cannot read the answer "unchanged", which comes without a vclock, as from Riak.
  async 'a fetch if modified brings what changed since'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: object('first') });
    const { vclock } = await riak.fetchValue(at);
    await riak.storeValue({ ...at, vclock, value: object('second') });
    const answer = await riak.fetchValue({ ...at, ifModified: vclock });
    assert.ok(!answer.isUnchanged);
    assert.deepStrictEqual(texts(answer), ['second']);
  },

  async 'a refused request leaves the connection usable'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    await riak.storeValue({ ...at, value: object('first') });
    for (let attempt = 0; attempt < 100; attempt += 1) {
      const again = riak.storeValue({ ...at, ifNoneMatch: true, value: object('second') });
      await assert.rejects(again, /match_found/);
    }
    assert.strictEqual(await riak.ping(), true);
  },
};
