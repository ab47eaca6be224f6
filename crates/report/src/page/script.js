"use strict";
// What the page does beyond being read: a cursor over the data, lines that hide, tables, export,
// another base for ratios, light and dark. Without it all charts and figures are still there.

const data = JSON.parse(document.getElementById("data").textContent);
const charts = [];
const NONE = "\u2013";
const BLANK = "\u00a0";

// Values in words, as the page's figures are written.

function digits(value) {
  const size = Math.abs(value);
  const decimals = size >= 100 || value === 0 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3;
  return String(Number(value.toFixed(decimals)));
}

function grouped(value) {
  if (Math.abs(value) < 100) return digits(value);
  return value.toFixed(0).replace(/\B(?=(\d{3})+$)/g, ",");
}

function prefixed(value, unit) {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let power = 0;
  while (power < prefixes.length - 1 && Math.abs(value) >= 1000) {
    value /= 1000;
    power += 1;
  }
  return digits(value) + BLANK + prefixes[power] + unit;
}

function duration(seconds) {
  if (seconds < 60) return digits(seconds) + BLANK + "s";
  const whole = Math.round(seconds);
  const two = (large, largeUnit, small, smallUnit) =>
    large + BLANK + largeUnit + (small === 0 ? "" : BLANK + small + BLANK + smallUnit);
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(whole / 60);
  return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
}

// Latencies have one unit, whatever their size.
function microseconds(value) {
  return grouped(value / 1e3) + BLANK + "ms";
}

function words(value, unit) {
  if (value === null || value === undefined) return NONE;
  switch (unit) {
    case "seconds": return duration(value);
    case "rate": return grouped(value) + BLANK + "ops/s";
    case "microseconds": return microseconds(value);
    case "cpu-time": return grouped(value) + BLANK + "\u00b5s";
    case "bytes": return prefixed(value, "B");
    case "byte-rate": return prefixed(value, "B/s");
    case "share": return digits(100 * value) + BLANK + "%";
    case "cores": return digits(value) + BLANK + "cores";
    default: return grouped(value);
  }
}

// Charts.

function place(axis, value) {
  if (!axis.log) return (value - axis.min) / (axis.max - axis.min);
  return Math.log(Math.max(value, axis.min) / axis.min) / Math.log(axis.max / axis.min);
}

// The index of the value nearest to x in an ascending column.
function nearest(column, x) {
  let low = 0;
  let high = column.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - column[low - 1] <= column[low] - x ? low - 1 : low;
}

class Chart {
  constructor(description) {
    this.description = description;
    this.figure = document.getElementById(description.id);
    this.plot = this.figure.querySelector(".plot");
    this.lines = description.lines.map((line) => ({
      name: line.name,
      ink: line.ink,
      x: data.columns[line.x],
      y: data.columns[line.y],
    }));
    // The cursor stops where the longest line has its points.
    this.stops = this.lines.reduce((best, line) => (line.x.length > best.length ? line.x : best), []);
    this.at = null;
    this.makeSlider();
    this.followPointer();
    this.makeKey();
    this.makeTable();
    for (const button of this.figure.querySelectorAll(".export")) {
      button.hidden = false;
      button.setAttribute("aria-label", `${description.title} as ${button.textContent}`);
      button.addEventListener("click", () => this.save(button.dataset.format));
    }
  }

  makeSlider() {
    const { plot, description } = this;
    plot.tabIndex = 0;
    plot.setAttribute("role", "slider");
    plot.setAttribute("aria-label", `Cursor over ${description.title}`);
    // A slider hides what is within it from assistive technology: it says itself what is drawn.
    plot.setAttribute("aria-description", plot.querySelector("svg").getAttribute("aria-label"));
    plot.setAttribute("aria-valuemin", "0");
    plot.setAttribute("aria-valuemax", String(Math.max(0, this.stops.length - 1)));
    plot.setAttribute("aria-valuenow", "0");
    plot.setAttribute("aria-valuetext", "not set; arrow keys move it");
    plot.addEventListener("keydown", (event) => this.key(event));
    plot.addEventListener("blur", () => showEverywhere(this, null));
  }

  key(event) {
    const last = this.stops.length - 1;
    const far = Math.max(1, Math.round(last / 20));
    const stride = event.shiftKey ? far : 1;
    const moves = {
      ArrowRight: stride, ArrowUp: stride, ArrowLeft: -stride, ArrowDown: -stride,
      PageUp: far, PageDown: -far, Home: -Infinity, End: Infinity,
    };
    if (event.key === "Escape") {
      showEverywhere(this, null);
    } else if (event.key in moves && last >= 0) {
      const from = this.at === null ? (moves[event.key] > 0 ? -1 : last + 1) : nearest(this.stops, this.at);
      const to = Math.min(last, Math.max(0, from + moves[event.key]));
      showEverywhere(this, this.stops[to]);
    } else {
      return;
    }
    event.preventDefault();
  }

  followPointer() {
    const follow = (event) => {
      const svg = this.drawing();
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      const share = ((event.clientX - box.left) * scale - svg.dataset.left) / svg.dataset.width;
      if (this.stops.length === 0 || share < -0.03 || share > 1.03) return;
      const { min, max } = this.description.x;
      showEverywhere(this, this.stops[nearest(this.stops, min + share * (max - min))]);
    };
    this.plot.addEventListener("pointermove", follow);
    this.plot.addEventListener("pointerdown", follow);
    this.plot.addEventListener("pointerleave", () => {
      if (document.activeElement !== this.plot) showEverywhere(this, null);
    });
  }

  // The drawing that is shown now, of those for several widths.
  drawing() {
    const drawings = [...this.plot.querySelectorAll("svg")];
    return drawings.find((svg) => svg.getBoundingClientRect().width > 0) || drawings[0];
  }

  // The value of a line at x; undefined where it does not reach.
  value(line, x) {
    const index = nearest(line.x, x);
    if (index < 0) return undefined;
    const { min, max } = this.description.x;
    const isFar = Math.abs(line.x[index] - x) > 0.03 * (max - min);
    const isOutside = x < line.x[0] || x > line.x[line.x.length - 1];
    return isFar && isOutside ? undefined : line.y[index];
  }

  show(x) {
    this.at = x;
    const { description, figure } = this;
    const texts = [];
    figure.querySelector(".at").textContent = x === null ? "" : words(x, description.x.unit);
    const buttons = figure.querySelectorAll(".key button");
    this.lines.forEach((line, index) => {
      const value = x === null ? undefined : this.value(line, x);
      const text = x === null ? "" : words(value, description.y.unit);
      buttons[index].querySelector(".value").textContent = text;
      if (x !== null) texts.push(`${line.name} ${text}`);
    });
    for (const svg of this.plot.querySelectorAll("svg")) this.drawCursor(svg, x);
    return texts.join("; ");
  }

  drawCursor(svg, x) {
    const group = svg.querySelector(".cursor");
    group.replaceChildren();
    if (x === null) return;
    const [left, top, width, height] = ["left", "top", "width", "height"].map((side) => Number(svg.dataset[side]));
    const across = left + width * place(this.description.x, x);
    group.append(element("path", { d: `M${across} ${top}v${height}` }));
    for (const line of this.lines) {
      const value = this.value(line, x);
      if (value === null || value === undefined || this.isOff(line.name)) continue;
      const own = line.x[nearest(line.x, x)];
      group.append(element("circle", {
        class: line.ink,
        cx: left + width * place(this.description.x, own),
        cy: top + height * (1 - place(this.description.y, value)),
        r: 4,
      }));
    }
  }

  announce(x, texts) {
    const stop = x === null ? 0 : nearest(this.stops, x);
    this.plot.setAttribute("aria-valuenow", String(stop));
    this.plot.setAttribute(
      "aria-valuetext",
      x === null ? "not set; arrow keys move it" : `at ${words(x, this.description.x.unit)}: ${texts}`,
    );
  }

  parts(name) {
    return [...this.plot.querySelectorAll("[data-line]")].filter((part) => part.dataset.line === name);
  }

  isOff(name) {
    return this.parts(name).some((part) => part.classList.contains("off"));
  }

  makeKey() {
    for (const button of this.figure.querySelectorAll(".key button")) {
      const name = button.dataset.line;
      const light = (isLit) => {
        this.plot.classList.toggle("dimmed", isLit && this.lines.length > 1);
        for (const part of this.parts(name)) part.classList.toggle("lit", isLit);
      };
      button.addEventListener("pointerenter", () => light(true));
      button.addEventListener("pointerleave", () => light(false));
      button.addEventListener("click", () => {
        const isOn = button.getAttribute("aria-pressed") === "true";
        button.setAttribute("aria-pressed", String(!isOn));
        for (const part of this.parts(name)) part.classList.toggle("off", isOn);
        light(false);
        this.show(this.at);
      });
    }
  }

  // The table is made when it is asked for: a day has thousands of rows.
  makeTable() {
    const details = this.figure.querySelector("details.table");
    const home = details.querySelector(".scroll");
    home.tabIndex = 0;
    home.setAttribute("role", "region");
    home.setAttribute("aria-label", `${this.description.title} as a table`);
    details.addEventListener("toggle", () => {
      if (!details.open || home.firstChild) return;
      const columns = this.description.table.map((column) => data.columns[column.values]);
      const table = document.createElement("table");
      const head = table.createTHead().insertRow();
      for (const column of this.description.table) {
        const cell = document.createElement("th");
        cell.scope = "col";
        cell.textContent = column.head;
        head.append(cell);
      }
      const body = table.createTBody();
      const rows = Math.max(0, ...columns.map((column) => column.length));
      for (let index = 0; index < rows; index += 1) {
        const row = body.insertRow();
        for (const column of columns) {
          const value = column[index];
          row.insertCell().textContent = value === null || value === undefined ? NONE : String(value);
        }
      }
      home.append(table);
    });
  }

  // The chart as a drawing of its own: title, names of the lines, and colours as they are now.
  toSvg() {
    const source = this.plot.querySelector("svg.wide");
    const copy = source.cloneNode(true);
    const properties = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity",
      "stroke-linecap", "stroke-linejoin", "paint-order", "font-size", "font-weight", "display"];
    const copies = copy.querySelectorAll("*");
    source.querySelectorAll("*").forEach((part, index) => {
      const style = getComputedStyle(part);
      const text = properties.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";");
      copies[index].setAttribute("style", text);
    });
    copy.querySelector(".cursor").remove();
    const { width, height } = source.viewBox.baseVal;
    const { color: ink, backgroundColor: ground } = getComputedStyle(document.body);
    const soft = getComputedStyle(document.querySelector(".subtitle")).color;
    const outer = element("svg", {
      xmlns: "http://www.w3.org/2000/svg",
      width: width + 32,
      height: height + 84,
      viewBox: `0 0 ${width + 32} ${height + 84}`,
      "font-family": "system-ui, sans-serif",
    });
    outer.append(element("rect", { width: "100%", height: "100%", fill: ground }));
    outer.append(element("text", { x: 16, y: 28, "font-size": 16, "font-weight": 600, fill: ink }, this.description.title));
    outer.append(element("text", { x: 16, y: 46, "font-size": 11.5, fill: soft }, document.querySelector("h1").textContent));
    let across = 16;
    for (const line of this.lines.filter((shown) => !this.isOff(shown.name))) {
      const part = this.parts(line.name)[0];
      const colour = getComputedStyle(part).color;
      outer.append(element("path", { d: `M${across} 61h16`, stroke: colour, "stroke-width": 2.5 }));
      outer.append(element("text", { x: across + 21, y: 65, "font-size": 11.5, fill: ink }, line.name));
      across += 21 + line.name.length * 6.4 + 18;
    }
    const body = element("g", { transform: "translate(16 74)", "font-size": 11.5 });
    body.append(...copy.childNodes);
    outer.append(body);
    return { text: new XMLSerializer().serializeToString(outer), width: width + 32, height: height + 84 };
  }

  async save(format) {
    const { text, width, height } = this.toSvg();
    const name = `${document.querySelector("h1").textContent}-${this.description.id}`.replace(/[^\w.-]+/g, "-");
    if (format === "svg") {
      download(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`);
      return;
    }
    const picture = new Image();
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await picture.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(blob, `${name}.png`), "image/png");
  }
}

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Charts over time show the same moment together, so that causes can be found.
function showEverywhere(origin, x) {
  const texts = origin.show(x);
  origin.announce(x, texts);
  for (const chart of charts) {
    if (chart !== origin && chart.description.x.unit === origin.description.x.unit) chart.show(x);
  }
}

// Ratios against another base.

function ratioSpan(value, base, better, isBase) {
  const span = document.createElement("span");
  span.className = "ratio";
  if (isBase) {
    span.textContent = "base";
    return span;
  }
  if (base === undefined || (base === 0 && value !== 0)) return span;
  const ratio = base === value ? 1 : value / base;
  span.textContent = ratio > 0 && ratio < 0.001 ? "\u00d7<0.001" : `\u00d7${digits(ratio)}`;
  if (Math.abs(ratio - 1) < 0.03) return span; // runs of the same thing differ by as much
  const isBetter = ratio > 1 === (better === "higher");
  span.classList.add(isBetter ? "better" : "worse");
  span.prepend(isBetter ? `\u25b2${BLANK}` : `\u25bc${BLANK}`);
  return span;
}

// Only runs of one load are compared. A load that the chosen run does not have is taken against its
// own first run.
function baseOf(cells, index, base) {
  const load = (cell) => cell.dataset.load;
  if (load(cells[index]) === load(cells[base])) return base;
  return cells.findIndex((cell) => load(cell) === load(cells[index]));
}

function rebase(table, base) {
  table.dataset.base = String(base);
  [...table.tHead.rows[0].cells].forEach((cell, index) => cell.classList.toggle("base", index === base + 1));
  for (const row of table.querySelectorAll("tr[data-better]")) {
    const number = (cell) => (cell.dataset.value === undefined ? undefined : Number(cell.dataset.value));
    const cells = [...row.cells].slice(1);
    cells.forEach((cell, index) => {
      if (cell.dataset.value === undefined) return;
      const own = baseOf(cells, index, base);
      const isAlone = cells.filter((other) => other.dataset.load === cell.dataset.load).length < 2;
      cell.classList.toggle("base", index === own);
      cell.querySelector(".ratio").replaceWith(
        ratioSpan(number(cell), isAlone ? undefined : number(cells[own]), row.dataset.better, index === own && !isAlone),
      );
    });
  }
}

// Light and dark.

function startTheme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const remembered = () => {
    try {
      return localStorage.getItem("kvorum-bench-theme");
    } catch {
      return null; // a page opened from a file may have no storage
    }
  };
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  };
  const chosen = remembered();
  if (chosen) root.dataset.theme = chosen;
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("kvorum-bench-theme", root.dataset.theme);
    } catch {
      // it holds for this page then
    }
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  label();
}

startTheme();
for (const description of data.charts) charts.push(new Chart(description));
const choice = document.getElementById("base");
if (choice) {
  choice.disabled = false;
  choice.addEventListener("change", () => {
    for (const table of document.querySelectorAll("table.ratios")) rebase(table, Number(choice.value));
  });
}
