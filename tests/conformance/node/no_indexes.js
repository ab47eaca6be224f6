// Scenarios on a server whose storage backend has no secondary indexes.
'use strict';

const assert = require('assert');

module.exports = {
  async 'queries are refused where the backend has no indexes'(riak) {
    for (const options of [
      { indexName: 'number_int', indexKey: 1 },
      { indexName: '$bucket', indexKey: '_' },
    ]) {
      const asked = riak.secondaryIndexQuery({ bucket: 'bucket', stream: false, ...options });
      await assert.rejects(asked, /indexes_not_supported/);
    }
  },
};
