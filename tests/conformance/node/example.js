// The example of docs/clients.md: objects, an index query and a counter with the Node.js client.
'use strict';

const { promisify } = require('util');
const Riak = require('basho-riak-client');

const places = [`127.0.0.1:${process.env.PB_PORT || '8087'}`]; // all nodes of the cluster

async function main() {
  const client = await new Promise((resolve, reject) => {
    const made = new Riak.Client(places, (error) => (error ? reject(error) : resolve(made)));
  });
  const ask = (method, options) => promisify(client[method].bind(client))(options);

  // An object with an index entry.
  const at = { bucket: 'people', key: 'ann' };
  const ann = new Riak.Commands.KV.RiakObject()
    .setContentType('application/json')
    .setValue({ name: 'Ann', age: 42 })
    .addToIndex('age_int', 42);
  await ask('storeValue', { ...at, value: ann });

  // Read, change, store: the object carries the version that was read.
  const read = (await ask('fetchValue', { ...at, convertToJs: true })).values[0];
  read.setValue({ ...read.getValue(), age: 43 });
  read.setIndex('age_int', [43]);
  await ask('storeValue', { value: read });
  const stored = (await ask('fetchValue', { ...at, convertToJs: true })).values[0];
  console.log('stored:', stored.getValue().age);

  // An index query, with the terms beside the keys.
  const range = { indexName: 'age_int', rangeStart: 18, rangeEnd: 65 };
  const found = await ask('secondaryIndexQuery', {
    bucket: 'people', ...range, returnKeyAndIndex: true, stream: false,
  });
  console.log('found:', JSON.stringify(found.values));

  // A counter, in a bucket type of that data type.
  const counter = { bucketType: 'counters', bucket: 'pages', key: 'home' };
  await ask('updateCounter', { ...counter, increment: 5 });
  console.log('counted:', (await ask('fetchCounter', counter)).counterValue);

  client.stop(() => process.exit(0));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
