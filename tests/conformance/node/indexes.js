// Scenarios: queries of secondary indexes.
'use strict';

const assert = require('assert');
const { fresh, object } = require('./client');

const KEYS = 60;

// Objects with a number and a word each: three keys a number, two words.
async function bucketWithIndexes(riak, bucketType) {
  const bucket = fresh('bucket');
  const keys = [];
  for (let number = 0; number < KEYS; number += 1) {
    keys.push(`key-${String(number).padStart(2, '0')}`);
  }
  await Promise.all(keys.map((key, at) => {
    const value = object(key)
      .addToIndex('number_int', Math.floor(at / 3) - 5)
      .addToIndex('word_bin', at % 2 === 0 ? 'even' : 'odd');
    return riak.storeValue({ bucketType, bucket, key, value });
  }));
  return { bucketType, bucket, keys };
}

function found(answer) {
  return answer.values.map((value) => value.objectKey);
}

async function query(riak, options) {
  return riak.secondaryIndexQuery({ stream: false, ...options });
}

module.exports = {
  async 'a value of an index finds its objects'(riak) {
    const { bucketType, bucket, keys } = await bucketWithIndexes(riak, 'plain');
    const at = { bucketType, bucket };
    const numbers = await query(riak, { ...at, indexName: 'number_int', indexKey: -4 });
    assert.deepStrictEqual(found(numbers).sort(), keys.slice(3, 6));
    const words = await query(riak, { ...at, indexName: 'word_bin', indexKey: 'odd' });
    assert.strictEqual(words.values.length, KEYS / 2);
    const none = await query(riak, { ...at, indexName: 'word_bin', indexKey: 'neither' });
    assert.deepStrictEqual(found(none), []);
  },

  async 'a range of numbers is in the order of numbers, with its terms'(riak) {
    const { bucketType, bucket, keys } = await bucketWithIndexes(riak, 'default');
    const range = { rangeStart: -1, rangeEnd: 10, returnKeyAndIndex: true, paginationSort: true };
    const answer = await query(riak, { bucketType, bucket, indexName: 'number_int', ...range });
    const expected = keys.slice(12, 48).map((key, at) => (
      { indexKey: Math.floor(at / 3) - 1, objectKey: key }));
    assert.deepStrictEqual(answer.values, expected);
  },

  async 'a range of keys and the whole bucket are indexes too'(riak) {
    const { bucketType, bucket, keys } = await bucketWithIndexes(riak, 'default');
    const at = { bucketType, bucket };
    const some = await query(riak, { ...at, indexName: '$key', rangeStart: keys[7], rangeEnd: keys[9] });
    assert.deepStrictEqual(found(some).sort(), keys.slice(7, 10));
    const all = await query(riak, { ...at, indexName: '$bucket', indexKey: bucket });
    assert.deepStrictEqual(found(all).sort(), keys);
  },

  async 'pages continue where the last one ended'(riak) {
    const { bucketType, bucket, keys } = await bucketWithIndexes(riak, 'default');
    const all = [];
    let continuation = null;
    let pages = 0;
    do {
      const page = await query(riak, {
        bucketType, bucket, indexName: 'number_int', rangeStart: -100, rangeEnd: 100,
        maxResults: 7, continuation,
      });
      all.push(...found(page));
      continuation = page.continuation;
      pages += 1;
    } while (continuation);
    assert.deepStrictEqual(all, keys);
    assert.strictEqual(pages, Math.ceil(KEYS / 7));
  },

  async 'a streamed query says when it is done'(riak) {
    const { bucketType, bucket, keys } = await bucketWithIndexes(riak, 'plain');
    const messages = await riak.streamIndex({
      bucketType, bucket, indexName: 'number_int', rangeStart: -100, rangeEnd: 100,
    });
    assert.deepStrictEqual(messages.flatMap(found).sort(), keys);
    assert.deepStrictEqual(messages.map((message) => Boolean(message.done)).indexOf(true),
      messages.length - 1);
  },

  async 'an index follows updates and deletes'(riak) {
    const at = { bucket: fresh('bucket') };
    const key = 'key';
    await riak.storeValue({ ...at, key, value: object('a').addToIndex('color_bin', 'red', 'blue') });
    const colored = (indexKey) => query(riak, { ...at, indexName: 'color_bin', indexKey });
    assert.deepStrictEqual(found(await colored('red')), [key]);
    const { values: [stored] } = await riak.fetchValue({ ...at, key });
    await riak.storeValue({
      ...at, key, value: object('b').setVClock(stored.getVClock()).addToIndex('color_bin', 'green'),
    });
    assert.deepStrictEqual(found(await colored('red')), []);
    assert.deepStrictEqual(found(await colored('green')), [key]);
    await riak.deleteValue({ ...at, key });
    assert.deepStrictEqual(found(await colored('green')), []);
  },

  async 'an index without a type is refused'(riak) {
    const asked = query(riak, { bucket: 'b', indexName: 'color', indexKey: 'red' });
    await assert.rejects(asked, /unknown_field_type/);
  },
};
