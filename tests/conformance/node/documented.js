// Scenario: the example of docs/clients.md, run as a reader runs it.
'use strict';

const assert = require('assert');
const { execFile } = require('child_process');
const path = require('path');

function run(file, environment) {
  const options = { env: { ...process.env, ...environment } };
  return new Promise((resolve, reject) => {
    execFile(process.execPath, ['--no-warnings', file], options, (error, printed, complaints) => {
      if (error) {
        reject(new Error(`${error.message}\n${complaints}`));
      } else {
        resolve(printed);
      }
    });
  });
}

module.exports = {
  async 'the example of the page about clients prints what it stored'(riak, port) {
    const printed = await run(path.join(__dirname, 'example.js'), { PB_PORT: port });
    assert.match(printed, /^stored: 43$/m);
    assert.match(printed, /^found: .*"objectKey":"ann"/m);
    assert.match(printed, /^counted: \d+$/m);
  },
};
