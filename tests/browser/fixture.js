// Result directories with known contents, for pages that can be checked to the last digit.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const LATENCY_HEAD = 'elapsed, window, n, min, mean, median, 95th, 99th, 99_9th, max, errors';
const SERVER_HEAD = 'elapsed, cpu_seconds, resident_bytes, disk_bytes, read_bytes, written_bytes, put_bytes';

// The same numbers in every run of the tests.
function randomness(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function write(folder, name, head, rows) {
  const lines = [head, ...rows.map((row) => row.map((value) => (value === null ? '' : value)).join(', '))];
  fs.writeFileSync(path.join(folder, name), `${lines.join('\n')}\n`);
}

// Writes a run; returns its rows of numbers, by file.
function makeRun(folder, options) {
  const { name, backend, rows, interval, rate, latency, stalls, seed } = options;
  fs.mkdirSync(folder, { recursive: true });
  const random = randomness(seed);
  const isStalled = (time) => stalls.some((stall) => time > stall.at_seconds && time - interval < stall.at_seconds + stall.seconds);
  const written = { summary: [], get: [], put: [], server: [[0, 0, 40e6, 0, 0, 0, 0]], volume: [[0, 0, 0]] };
  let [cpu, disk, read, wrote, put, payload, operations] = [0, 0, 0, 0, 0, 0, 0];
  for (let row = 1; row <= rows; row += 1) {
    const elapsed = row * interval;
    const slow = isStalled(elapsed) ? 0.15 : 1;
    const trend = 1 + 0.6 * Math.exp((-3 * row) / rows);
    const total = Math.round(rate * interval * slow * trend * (0.92 + 0.16 * random()));
    const failed = random() < 0.04 ? Math.round(20 * random()) : 0;
    const gets = Math.round(total * 0.75);
    written.summary.push([elapsed, interval, total + failed, total, failed]);
    for (const [operation, count, factor] of [['get', gets, 1], ['put', total - gets, 2.6]]) {
      const mean = Math.round(10 * latency * factor * (1 + 0.2 * random()) / slow) / 10;
      const tail = (times) => Math.round(mean * times * (0.9 + 0.3 * random()));
      const statistics = [tail(0.2), mean, tail(0.85), tail(2.4), tail(5), tail(14), tail(22 + 60 * random() ** 4 + 500 * (slow < 1))];
      const isIdle = options.idleRow === row && operation === 'put';
      written[operation].push(
        isIdle ? [elapsed, interval, 0, 0, 0, 0, 0, 0, 0, 0, 0] : [elapsed, interval, count, ...statistics, operation === 'get' ? failed : 0],
      );
    }
    const putBytes = (total - gets) * 8000;
    cpu += total * 14e-6;
    put += putBytes;
    payload += total * 8000;
    operations += total;
    wrote += Math.round(putBytes * options.amplification);
    read += Math.round(gets * 800 * random());
    disk = put * (1.02 + 0.3 * ((row / 12) % 1));
    written.server.push([elapsed, Math.round(cpu * 100) / 100, Math.round(90e6 + put / 60), Math.round(disk), read, wrote, put]);
    written.volume.push([elapsed, operations, payload]);
  }
  write(folder, 'summary.csv', 'elapsed, window, total, successful, failed', written.summary);
  write(folder, 'get_latencies.csv', LATENCY_HEAD, written.get);
  write(folder, 'put_latencies.csv', LATENCY_HEAD, written.put);
  if (options.isPlain) return written;
  write(folder, 'server.csv', SERVER_HEAD, written.server);
  write(folder, 'volume.csv', 'elapsed, operations, payload_bytes', written.volume);
  fs.writeFileSync(path.join(folder, 'run.json'), JSON.stringify(describe(options, written), null, 2));
  return written;
}

function totals(rows) {
  const count = rows.reduce((sum, row) => sum + row[2], 0);
  const mean = rows.reduce((sum, row) => sum + row[2] * row[4], 0) / count;
  const thousandths = (value) => Math.round(1000 * value) / 1000;
  const at = (column) => Math.max(...rows.map((row) => row[column]));
  return {
    count, misses: 0, errors: rows.reduce((sum, row) => sum + row[10], 0), mean_us: thousandths(mean),
    p50_us: Math.round(mean * 0.85), p95_us: Math.round(mean * 2.4), p99_us: Math.round(mean * 5), p999_us: Math.round(mean * 14), max_us: at(9),
  };
}

function describe(options, written) {
  const successful = written.summary.reduce((sum, row) => sum + row[3], 0);
  const seconds = options.rows * options.interval;
  return {
    format: 1,
    name: options.name,
    configuration_file: 'published-test4.config',
    configuration: {
      mode: 'max', duration: '1440', concurrent: String(options.workers ?? 100), driver: 'basho_bench_driver_nhs',
      unique: '{8000,skew_order}', operations: '[{get,3},{put,1}]', note: '<<"</script>">>',
    },
    started_unix_seconds: 1795325400,
    duration_seconds: seconds,
    warm_up_seconds: 5,
    mode: 'closed',
    rate: null,
    workers: options.workers ?? 100,
    scale: 0.002,
    driver: 'nhs',
    backend: options.backend,
    durability: options.durability ?? 'grouped',
    server: { version: '0.1.0', settings: { storage_backend: options.backend, ring_size: '64', 'bitcask.compression': 'none' } },
    machine: {
      cpu_model: 'A processor of eight letters @ 2.60GHz', cores: 2, memory_bytes: 25769803776,
      kernel: '6.1.0-28-amd64', filesystem: 'ext4', device: 'nvme0n1',
    },
    totals: { get: totals(written.get), put: totals(written.put) },
    operations_total: successful,
    operations_per_second: successful / seconds,
    stalls: options.stalls,
  };
}

const STALLS = [{ at_seconds: 52.4, seconds: 3.1 }, { at_seconds: 131, seconds: 0.7 }];

const BITCASK = {
  name: 'Test 4, bitcask', backend: 'bitcask', rows: 90, interval: 2, rate: 21000, latency: 1400,
  amplification: 2.1, stalls: STALLS, seed: 1, idleRow: 40,
};
const MEMORY = {
  name: 'Test 4, memory', backend: 'memory', rows: 90, interval: 2, rate: 34000, latency: 900,
  amplification: 0.01, stalls: [], seed: 2,
};
// Another load, not comparable with either of them.
const OTHER_LOAD = { ...MEMORY, name: 'Test 4, twice the workers', workers: 200, seed: 4 };
// A day of rows, as the published runs have them.
const DAY = {
  name: 'A whole day', backend: 'bitcask', rows: 8640, interval: 10, rate: 21000, latency: 1400,
  amplification: 2.1, stalls: [{ at_seconds: 40000, seconds: 12 }], seed: 3,
};

module.exports = { makeRun, BITCASK, MEMORY, OTHER_LOAD, DAY };

if (require.main === module) {
  const root = process.argv[2];
  makeRun(path.join(root, 'bitcask'), BITCASK);
  makeRun(path.join(root, 'memory'), MEMORY);
  makeRun(path.join(root, 'day'), DAY);
  makeRun(path.join(root, 'plain'), { ...BITCASK, isPlain: true });
}
