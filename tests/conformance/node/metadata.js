// Scenarios: metadata that is stored beside a value comes back with it.
'use strict';

const assert = require('assert');
const { fresh, object } = require('./client');

async function storeAndFetch(riak, value) {
  const at = { bucket: fresh('bucket'), key: 'key' };
  await riak.storeValue({ ...at, value });
  const answer = await riak.fetchValue(at);
  assert.strictEqual(answer.values.length, 1);
  return answer.values[0];
}

module.exports = {
  async 'content type and encoding are kept'(riak) {
    const value = object('value').setContentType('text/x-any').setContentEncoding('identity');
    const stored = await storeAndFetch(riak, value);
    assert.strictEqual(stored.getContentType(), 'text/x-any');
    assert.strictEqual(stored.getContentEncoding(), 'identity');
  },

  async 'user metadata is kept, whatever is in it'(riak) {
    const metadata = [
      { key: 'Name', value: 'Value' },
      { key: 'empty', value: '' },
      { key: 'script', value: '\u6c34 \u00e9' },
    ];
    const stored = await storeAndFetch(riak, object('value').setUserMeta(metadata));
    const byKey = (one, other) => (one.key < other.key ? -1 : 1);
    assert.deepStrictEqual([...stored.getUserMeta()].sort(byKey), [...metadata].sort(byKey));
  },

  async 'index entries are stored and returned'(riak) {
    const value = object('value').addToIndex('name_bin', 'one', 'two').addToIndex('age_int', 42);
    const stored = await storeAndFetch(riak, value);
    assert.deepStrictEqual([...stored.getIndex('name_bin')].sort(), ['one', 'two']);
    assert.deepStrictEqual(stored.getIndex('age_int').map(Number), [42]);
  },

  async 'links are kept'(riak) {
    const links = [
      { bucket: 'people', key: 'one', tag: 'friend' },
      { bucket: 'people', key: 'two', tag: 'foe' },
    ];
    const stored = await storeAndFetch(riak, object('value').setLinks(links));
    const byKey = (one, other) => (one.key < other.key ? -1 : 1);
    assert.deepStrictEqual([...stored.getLinks()].sort(byKey), links);
  },

  async 'the time of the last change is reported'(riak) {
    const stored = await storeAndFetch(riak, object('value'));
    const age = Date.now() - stored.getLastModified();
    assert.ok(Math.abs(age) < 3600 * 1000, `${age} ms`);
  },

  async 'a later write without metadata takes it away'(riak) {
    const at = { bucket: fresh('bucket'), key: 'key' };
    const first = object('first').setUserMeta([{ key: 'name', value: 'value' }]);
    await riak.storeValue({ ...at, value: first });
    const { vclock } = await riak.fetchValue(at);
    await riak.storeValue({ ...at, vclock, value: object('second') });
    const answer = await riak.fetchValue(at);
    assert.deepStrictEqual(answer.values[0].getUserMeta() || [], []);
  },
};
