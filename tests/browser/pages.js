// Reading a page of kvorum bench as a person would: its drawings, its texts, its descriptions.
'use strict';

const { holds } = require('./expect');

// Opens a page; keeps its errors and its requests to a network.
async function open(browser, file, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true, ...options });
  const page = await context.newPage();
  page.complaints = [];
  page.on('console', (message) => page.complaints.push(message.text()));
  page.on('pageerror', (error) => page.complaints.push(error.message));
  page.on('request', (request) => {
    if (!/^(file|data|blob):/.test(request.url())) page.complaints.push(`asks for ${request.url()}`);
  });
  await page.goto(`file://${file}`);
  return page;
}

async function close(page) {
  holds(page.complaints.length === 0, `the page complains: ${page.complaints.join('; ')}`);
  await page.context().close();
}

// The points of a drawn line as values, from the places in its path back through the axes that the
// page itself declares.
function drawnLine(page, chart, name) {
  return page.evaluate(([id, line]) => {
    const { charts } = JSON.parse(document.getElementById('data').textContent);
    const { x, y } = charts.find((found) => found.id === id);
    const svg = document.querySelector(`#${CSS.escape(id)} svg.wide`);
    const path = svg.querySelector(`.line[data-line="${line}"] path:not(.area)`);
    const number = (side) => Number(svg.dataset[side]);
    const back = (axis, share) => (axis.log ? axis.min * (axis.max / axis.min) ** share : axis.min + share * (axis.max - axis.min));
    const points = [];
    for (const [, command, across, down] of path.getAttribute('d').matchAll(/([ML])([\d.-]+) ([\d.-]+)/g)) {
      points.push({
        isStart: command === 'M',
        x: back(x, (across - number('left')) / number('width')),
        y: back(y, 1 - (down - number('top')) / number('height')),
      });
    }
    // A tenth of a pixel, which is how exactly places are written, as a part of each axis.
    return { points, xStep: (x.max - x.min) / number('width') / 10, yStep: (y.max - y.min) / number('height') / 10, log: y.log };
  }, [chart, name]);
}

// The table of a chart, opened, as rows of texts under their heads.
async function table(page, chart) {
  const figure = page.locator(`[id="${chart}"]`);
  await figure.locator('details.table summary').click();
  await figure.locator('details.table table').waitFor();
  return figure.locator('details.table table').evaluate((element) =>
    [...element.rows].map((row) => [...row.cells].map((cell) => cell.textContent)));
}

module.exports = { open, close, drawnLine, table };
