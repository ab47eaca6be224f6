// The client with promises for callbacks, and names that no other scenario uses.
'use strict';

const Riak = require('basho-riak-client');

require('winston').level = 'error'; // the client's logger

const CONNECTIONS = 64;
const REQUEST_TIMEOUT_MS = 30000;

let names = 0;

// A bucket or key of its own for each caller, also over several runs on one server.
function fresh(word) {
  names += 1;
  return `${word}-${process.pid}-${Date.now()}-${names}`;
}

// At most so many calls at a time; the others wait. The client refuses a call that finds no connection.
function limited(most) {
  const waiting = [];
  let running = 0;
  return async (call) => {
    if (running === most) {
      await new Promise((resolve) => waiting.push(resolve));
    } else {
      running += 1;
    }
    try {
      return await call();
    } finally {
      const next = waiting.shift();
      if (next) {
        next();
      } else {
        running -= 1;
      }
    }
  };
}

const withConnection = limited(CONNECTIONS);

// A method of the client as a promise.
function promised(client, method) {
  return (options) => withConnection(() => new Promise((resolve, reject) => {
    const done = (error, answer) => {
      if (error) {
        reject(new Error(String(error.message || error)));
      } else {
        resolve(answer);
      }
    };
    if (options === undefined) {
      client[method](done);
    } else {
      client[method](options, done);
    }
  }));
}

// A streamed listing: all its messages.
function streamed(client, method) {
  return (options) => new Promise((resolve, reject) => {
    const messages = [];
    client[method]({ ...options, stream: true }, (error, message) => {
      if (error) {
        reject(new Error(String(error.message || error)));
        return;
      }
      messages.push(message);
      if (message.done) {
        resolve(messages);
      }
    });
  });
}

const METHODS = [
  'deleteValue', 'fetchBucketProps', 'fetchBucketTypeProps', 'fetchPreflist', 'fetchServerInfo',
  'fetchValue', 'listBuckets', 'listKeys', 'ping', 'resetBucketProps',
  'secondaryIndexQuery', 'stop', 'storeBucketProps', 'storeBucketTypeProps', 'storeValue',
];

async function connect(port) {
  const node = new Riak.Node({
    remoteAddress: '127.0.0.1',
    remotePort: Number(port),
    maxConnections: CONNECTIONS,
    requestTimeout: REQUEST_TIMEOUT_MS,
  });
  const cluster = new Riak.Cluster({ nodes: [node], executionAttempts: 1 });
  const client = await new Promise((resolve, reject) => {
    const made = new Riak.Client(cluster, (error) => (error ? reject(error) : resolve(made)));
  });
  const riak = {};
  for (const method of METHODS) {
    riak[method] = promised(client, method);
  }
  riak.streamKeys = streamed(client, 'listKeys');
  riak.streamBuckets = streamed(client, 'listBuckets');
  riak.streamIndex = streamed(client, 'secondaryIndexQuery');
  return riak;
}

// An object with a text in it.
function object(text) {
  return new Riak.Commands.KV.RiakObject().setContentType('text/plain').setValue(text);
}

// The texts of all siblings, in order.
function texts(answer) {
  return answer.values.map((value) => value.getValue().toString('utf8')).sort();
}

module.exports = { connect, fresh, object, texts };
