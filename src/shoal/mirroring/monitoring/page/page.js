"use strict";
// Shows one object (its shape: data.py): polled from the mirror once a second, or written into a report.

const POLL_MS = 1000;
const POLL_TIMEOUT_MS = 10000;
// Tasks are silent for seconds between two windows.
const SILENT_S = 30;

const written = JSON.parse(document.getElementById("data").textContent);
const isReport = written !== null;
const view = { range: isReport ? "whole" : "recent", all: false };

// Words and numbers

const compact = (value) => (value < 1e7 ? integer(value) : scaled(value, ["", "k", "M", "G", "T"], 1000));
const plural = (count, noun, many) => `${integer(count)} ${count === 1 ? noun : many || noun + "s"}`;
const integer = (value) => Math.round(value).toLocaleString("en");

function scaled(value, units, base) {
  let step = 0;
  while (Math.abs(value) >= base && step < units.length - 1) { value /= base; step += 1; }
  const digits = step === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[step]}`;
}

const bytes = (value) => scaled(value, ["B", "kB", "MB", "GB", "TB", "PB"], 1000);

function duration(seconds) {
  if (seconds < 0.005) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.round(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.round(hours / 24)} days`;
}

// Pauses are short.
const milliseconds = (seconds) => (seconds < 1 ? `${Math.round(seconds * 1000)} ms` : duration(seconds));

const share = (part, whole) => (whole ? `${(Math.floor((part / whole) * 1000) / 10).toFixed(1)} %` : "–");
const orDash = (value, format) => (value === null || value === undefined ? "–" : format(value));
// Year first, and with the time zone: a page is looked at from everywhere.
const time = (ms) => new Date(ms).toLocaleString("sv-SE", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  timeZoneName: "short",
});
const capital = (text) => text[0].toUpperCase() + text.slice(1);

// Elements: text is always text, never HTML

function element(name, properties, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

const shown = new Map();

// Only changed sections are replaced, so that a user can select a text while the page updates.
function show(id, content, make) {
  const key = JSON.stringify(content);
  if (shown.get(id) === key) return;
  shown.set(id, key);
  const place = document.getElementById(id);
  const made = content === null ? [] : make(content);
  place.replaceChildren(...made);
  place.hidden = made.length === 0;
}

// A longer table scrolls in a window of its own.
const ROWS_SHOWN_WHOLE = 25;

// columns: [heading, class, cell of a row]
// The roles are explicit because browsers drop a table's own roles if page.css stacks its cells.
function table(caption, columns, rows) {
  const head = element("tr", { role: "row" }, ...columns.map(([heading, kind]) =>
    element("th", { scope: "col", role: "columnheader", className: kind }, heading)));
  const body = rows.map((row) => element("tr", { role: "row" }, ...columns.map(([heading, kind, cell]) =>
    element("td", { role: "cell", className: kind, "data-heading": heading }, cell(row)))));
  const className = rows.length > ROWS_SHOWN_WHOLE ? "scroll long" : "scroll";
  return element("div", { className, tabIndex: 0, role: "region", "aria-label": caption },
    element("table", { role: "table" }, element("caption", {}, caption),
      element("thead", { role: "rowgroup" }, head), element("tbody", { role: "rowgroup" }, ...body)));
}

// State, headline and tiles

const count = ({ totals }, state) => totals.states[state] || 0;

// Every partition is in one state, so these add up.
const stateCounts = ({ states }) => Object.entries(states).filter(([name, many]) => many || name === "up to date")
  .map(([name, many]) => `${integer(many)} ${name}`).join(", ");

function state(data) {
  const { totals, ending } = data;
  const stopped = data.stopped.count;
  if (ending) return ending.good ? ["good", "Ended"] : ["bad", "Ended with problems"];
  if (totals.phase === "stopping") return ["busy", "Stopping"];
  const down = data.clusters_down.map(({ cluster }) => cluster);
  if (down.length) return ["bad", `${capital(down.join(" and "))} down`];
  if (totals.last_report_age_s > SILENT_S) return ["warn", "Silent"];
  if (stopped) return ["bad", plural(stopped, "partition") + " stopped"];
  if (data.waiting.count) return ["warn", plural(data.waiting.count, "partition") + " waiting"];
  if (totals.last_report_age_s === null) return ["busy", "Starting"];
  return count(data, "up to date") === totals.partitions ? ["good", "Up to date"] : ["busy", "Copying"];
}

function headline(data) {
  const { totals, ending } = data;
  if (ending) return ending.sentence;
  if (totals.phase === "stopping") return "The mirror completes the requests in flight, commits, and ends.";
  if (data.clusters_down.length) {
    return data.clusters_down.map(({ sentence, reason }) => `${capital(sentence)}: ${reason}.`).join(" ");
  }
  if (totals.last_report_age_s === null) {
    return `${capital(totals.phase)} for ${duration(totals.phase_s)}; no task has reported yet.`;
  }
  if (totals.last_report_age_s > SILENT_S) {
    return `No task has reported for ${duration(totals.last_report_age_s)}, although tasks report twice a second. The numbers below may be out of date.`;
  }
  const speed = `${integer(totals.records_per_s)} records/s, ${bytes(totals.bytes_per_s)}/s`;
  if (!totals.lag_records) {
    const but = data.stopped.count ? `; ${plural(data.stopped.count, "partition")} stopped` : "";
    return `All known records are copied${but}. ${speed}.`;
  }
  const behind = [plural(totals.lag_records, "record")];
  if (totals.lag_s) behind.push(duration(totals.lag_s));
  const left = totals.remaining_s === null ? "" : `, about ${duration(totals.remaining_s)} to go`;
  return `Behind by ${behind.join(", ")}${left}. ${speed}.`;
}

function lagWords({ lag_s: seconds, held_back_records: heldBack }) {
  const words = seconds === null ? "records" : `records, ${duration(seconds)}`;
  return heldBack ? `${words}; ${compact(heldBack)} more in open transactions` : words;
}

function tiles(data) {
  const { totals } = data;
  const opened = data.conversions.opened;
  const cpu = isReport ? null : lastRates(data);
  return [
    isReport
      ? ["Copied", bytes(totals.bytes_out), `${plural(totals.records, "record")} in ${plural(totals.batches, "batch", "batches")}`]
      : ["Throughput", `${bytes(totals.bytes_per_s)}/s`, `${integer(totals.records_per_s)} records/s`],
    ["Lag", compact(totals.lag_records), lagWords(totals)],
    ["Partitions", integer(totals.partitions),
      stateCounts(totals)],
    ["Copied unopened", share(data.conversions.unopened, data.conversions.unopened + opened),
      `${plural(opened, "batch", "batches")} decoded`],
    isReport
      ? ["CPU per GB copied", totals.bytes_out ? `${(totals.cpu_s / (totals.bytes_out / 1e9)).toFixed(2)} s` : "–",
        `${totals.cpu_s.toFixed(1)} CPU-seconds since the start`]
      : ["CPU", cpu === null ? "–" : cpu.toFixed(2), "cores in use, last 10 seconds"],
    ["Memory", bytes(totals.rss_bytes), isReport ? "peak, all processes" : "all processes"],
    [isReport ? "Ran for" : "Up for", duration(totals.elapsed_s), plural(totals.retries, "retry", "retries")],
  ];
}

const troubles = (title, note, { count, reasons }) =>
  (count ? { title: `${title}: ${plural(count, "partition")}`, note, reasons } : null);

function namesOf({ partitions, count }) {
  const names = partitions.map((name, at) =>
    element("span", { className: "whole" }, at + 1 < partitions.length ? `${name}, ` : name));
  if (count > partitions.length) names.push(` and ${integer(count - partitions.length)} more`);
  return element("span", {}, ...names);
}

const troubleSection = ({ title, note, reasons }) => [
  element("h2", {}, title),
  table(note, [
    ["Partitions", "name", namesOf],
    ["Reason", "reason", (row) => row.reason],
  ], reasons),
];

function showWords(data) {
  const [kind, word] = state(data);
  show("state", [kind, word], () => [word]);
  document.getElementById("state").className = `pill ${kind}`;
  const { about } = data;
  show("title", `${about.source} → ${about.destination}`, (text) => [text]);
  document.title = `${word} – ${about.source} → ${about.destination} – shoal`;
  const until = isReport ? ` to ${time(data.now_ms)}` : "";
  show("about", `${about.group === null ? "checking the clusters" : `group ${about.group}`} · ${isReport ? "from" : "since"} ${time(data.started_ms)}${until} · shoal ${about.version}`,
    (text) => [text]);
  show("headline", headline(data), (text) => [text]);
  show("tiles", tiles(data), (all) => all.map(([name, value, more]) =>
    element("div", { className: "tile" }, element("span", { className: "quiet" }, name),
      element("b", {}, value), element("span", { className: "quiet" }, more))));
  show("stopped", troubles("Stopped", "The mirror copies nothing of these partitions until you remove the reason.", data.stopped), troubleSection);
  show("waiting", troubles("Waiting", "These problems can end without you. The mirror retries until they do.", data.waiting), troubleSection);
  show("held_back", data.held_back.length ? data.held_back : null, (rows) => [
    element("h2", {}, "Open transactions at the source"),
    table("A read_committed consumer, such as the mirror, reads no record after the start of an open transaction. kafka-transactions.sh find-hanging lists these transactions.", [
      ["Partition", "name", (row) => row.partition],
      ["Held back, records", "number", (row) => integer(row.records)],
      ["Seen since", "", (row) => time(row.since_ms)],
    ], rows),
  ]);
  show("incidents", data.incidents.length ? data.incidents : null, (rows) => [
    element("h2", {}, "Incidents"),
    table("The mirror continued after these incidents. Lost records stay lost.", [
      ["Partition", "name", (row) => row.partition],
      ["Incident", "", (row) => row.kind],
      ["Lost", "number", (row) => orDash(row.lost, integer)],
      ["Reason", "reason", (row) => row.reason],
    ], rows),
  ]);
  show("steering", data.steering.length ? data.steering : null, (sentences) => [
    element("h2", {}, "Steering"), ...sentences.map((sentence) => element("p", {}, sentence)),
  ]);
  const behind = data.followed.filter((row) => row.sentences.length);
  show("followed", behind.length ? behind.map(({ kind, synced, sentences }) => ({ kind, synced, sentences })) : null, (rows) => [
    element("h2", {}, "Differences besides the records"),
    table("The destination differs from the source in these. The mirror changes only what its options --sync-configs and --sync-acls name.", [
      ["What", "", (row) => row.kind],
      ["Synced", "", (row) => (row.synced ? "yes" : "no")],
      ["Difference", "reason", (row) => row.sentence],
    ], rows.flatMap(({ kind, synced, sentences }) => sentences.map((sentence) => ({ kind, synced, sentence })))),
  ]);
  show("consumer_groups", data.consumer_groups, (groups) => [
    element("h2", {}, "Consumer groups"),
    element("p", {}, groupWords(groups)),
    ...(groups.failure ? [element("p", {}, `The last translation failed: ${groups.failure}`)] : []),
    ...(groups.left_alone.length ? [element("p", {}, `Active at the destination, so left alone: ${groups.left_alone.join(", ")}`)] : []),
    ...Object.entries(groups.problems).map(([name, problem]) => element("p", {}, `${name}: ${problem}`)),
  ]);
  show("compared", data.followed.length ? data.followed : null, (rows) => [
    element("h2", {}, "Configurations and ACLs"),
    element("p", {}, `${rows.map(comparisonWords).join("; ")}.`),
  ]);
  show("warnings", data.warnings.length ? data.warnings : null, (sentences) => [
    element("h2", {}, "Warnings"), ...sentences.map((sentence) => element("p", {}, sentence)),
  ]);
}

const ago = (age) => `${duration(age)} ${isReport ? "before the end" : "ago"}`;

const comparisonWords = ({ kind, synced, differing, age_s: age }) =>
  `${kind}${synced ? ", synced" : ""}: ${differing ? `${integer(differing)} differ` : "no differences"}, compared ${ago(age)}`;

function groupWords(groups) {
  const counts = (numbers) => Object.entries(numbers).filter(([, count]) => count).map(([name, count]) => `${integer(count)} ${name}`).join(", ");
  const age = groups.age_s === null ? "not translated yet" : `translated ${ago(groups.age_s)}`;
  return [`${plural(groups.groups, "group")}, ${age}`, counts(groups.offsets), counts(groups.actions)].filter(Boolean).join("; ") + ".";
}

const partitionState = ({ state: name }) =>
  element("span", { className: `state-${name.replaceAll(" ", "-")}` }, name);

function showTables(data) {
  const { rows, count } = data.partitions;
  show("partitions", { rows, count, all: view.all }, () => {
    const columns = [
      ["Partition", "name", (row) => row.partition],
      ["Lag, records", "number", (row) => orDash(row.lag_records, integer)],
      ["Lag, time", "number", (row) => orDash(row.lag_s, duration)],
      ["Records", "number", (row) => integer(row.records)],
      ["Bytes out", "number", (row) => bytes(row.bytes_out)],
      ["Rate", "number", (row) => orDash(row.bytes_per_s, (value) => `${bytes(value)}/s`)],
      ["Last commit", "number", (row) => orDash(row.commit_age_s, ago)],
      ["State", "", partitionState],
      ["Task's process", "", (row) => orDash(row.process, String)],
    ].filter(([heading]) => !(isReport && heading === "Rate"));
    const made = [
      element("h2", {}, "Slowest partitions"),
      table(rows.length < count ? `The ${rows.length} furthest behind of ${integer(count)}; stopped and waiting partitions come first.` : `All ${plural(count, "partition")}; stopped and waiting partitions come first, then the furthest behind.`,
        columns, rows),
    ];
    if (!isReport && (rows.length < count || view.all)) {
      const label = view.all ? "Only the slowest" : `Show all ${integer(count)}`;
      made.push(element("p", {}, element("button", { id: "all", onclick: () => { view.all = !view.all; poll(); } }, label)));
    }
    return made;
  });
  show("processes", data.processes, (processes) => [
    element("h2", {}, "Tasks and processes"),
    table("Each task of Spark runs in a Python process of its own. Spark keeps idle processes for later tasks.", [
      ["Process", "name", (row) => row.name],
      ["Kind", "", (row) => row.kind],
      ["Partitions", "number", (row) => orDash(row.partitions, integer)],
      ["Rate", "number", (row) => orDash(row.bytes_per_s, (value) => `${bytes(value)}/s`)],
      ["CPU, cores", "number", (row) => orDash(row.cores, (value) => value.toFixed(2))],
      ["CPU-seconds", "number", (row) => row.cpu_s.toFixed(1)],
      ["Memory", "number", (row) => bytes(row.rss_bytes)],
      ["GC", "number", (row) => orDash(row.gc, (gc) => `${milliseconds(gc.time_s)} in ${plural(gc.pauses, "pause")}`)],
    ].filter(([heading]) => !(isReport && (heading === "Rate" || heading === "CPU, cores"))), processes),
  ]);
  show("topics", data.topics, (topics) => [
    element("h2", {}, "Topics"),
    table(`${plural(topics.count, "topic")}${topics.rows.length < topics.count ? `, the ${topics.rows.length} with the most bytes` : ""}.`, [
      ["Topic", "name", (row) => row.topic],
      ["Partitions", "number", (row) => integer(row.partitions)],
      ["Records", "number", (row) => integer(row.records)],
      ["Bytes out", "number", (row) => bytes(row.bytes_out)],
      ["Records per batch", "number", (row) => orDash(row.records_per_batch, (value) => value.toFixed(1))],
      ["Bytes per batch", "number", (row) => orDash(row.bytes_per_batch, bytes)],
      ["Lag, records", "number", (row) => integer(row.lag_records)],
      ["Stopped", "number", (row) => (row.stopped ? `${integer(row.stopped)} of ${integer(row.partitions)}` : "–")],
    ], topics.rows),
  ]);
}

// Figures

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Plotly reads labels as HTML of sorts.
const label = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function layout(changes) {
  const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"), fixedrange: true, automargin: true, exponentformat: "none", separatethousands: true };
  const { xaxis, yaxis, ...rest } = changes;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--text"), size: 12 },
    margin: { l: 8, r: 12, t: 8, b: 8 },
    showlegend: true,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--ground"), bordercolor: colour("--line"), font: { color: colour("--text") } },
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, rangemode: "tozero", ...yaxis },
    ...rest,
  };
}

const TIME_ZONE = new Intl.DateTimeFormat("sv-SE", { timeZoneName: "short" }).formatToParts()
  .find(({ type }) => type === "timeZoneName").value;

// Years first, and the time zone once below the axis.
const timeAxis = () => ({
  type: "date", hoverformat: "%Y-%m-%d %H:%M:%S", title: { text: TIME_ZONE, standoff: 4 },
  tickformatstops: [
    { dtickrange: [null, 59999], value: "%H:%M:%S\n%Y-%m-%d" },
    { dtickrange: [60000, 86399999], value: "%H:%M\n%Y-%m-%d" },
    { dtickrange: [86400000, null], value: "%Y-%m-%d" },
  ],
});

// If all values are 0 or unknown, Plotly would guess the axis.
const valueAxis = (unit, ...columns) => {
  const largest = Math.max(0, ...columns.flat().map((value) => value || 0));
  return { title: { text: unit }, ...(largest ? {} : { range: [0, 1], tickvals: [0] }) };
};

const SPEEDS = [["GB/s", 1e9], ["MB/s", 1e6], ["kB/s", 1e3], ["B/s", 1]];

// The unit in which the largest value is no small fraction: of 200 bytes a second, B/s.
function speedUnit(...columns) {
  const largest = Math.max(0, ...columns.flat().map((value) => value || 0));
  return largest ? SPEEDS.find(([, bytes]) => largest >= bytes) || SPEEDS[3] : SPEEDS[1];
}

// Rates between neighbouring samples.
function rates(times, totals, factor) {
  return totals.slice(1).map((total, at) => {
    const seconds = (times[at + 1] - times[at]) / 1000;
    return seconds > 0 && total !== null && totals[at] !== null ? ((total - totals[at]) / seconds) * factor : null;
  });
}

function lastRates(data) {
  const { at_ms: times, driver_cpu_s, jvm_cpu_s, tasks_cpu_s } = data.history;
  const last = times.length - 1;
  const first = Math.max(0, last - 10);
  if (last <= first) return null;
  const used = [driver_cpu_s, jvm_cpu_s, tasks_cpu_s].map((column) => column[last] - column[first]);
  return used.reduce((sum, each) => sum + each, 0) / ((times[last] - times[first]) / 1000);
}

const line = (name, times, values, series, more) => ({
  type: "scatter", mode: "lines", name, x: times.map((ms) => new Date(ms)), y: values,
  line: { color: colour(`--series-${series}`), width: 2 }, ...more,
});

// Patterns distinguish the areas for users who cannot see the colours.
const PROCESSES = [["driver", "driver", 1, "/"], ["jvm", "Spark's JVM", 2, "."], ["tasks", "tasks", 3, "x"]];

function stacked(times, columnOf) {
  return PROCESSES.map(([key, name, series, shape]) =>
    line(name, times, columnOf(key), series, {
      stackgroup: "all", line: { width: 1, color: colour(`--series-${series}`) },
      fillpattern: { shape, size: 7, solidity: 0.25, fillmode: "overlay", fgcolor: colour(`--series-${series}`) },
    }));
}

function bars(names, values, texts) {
  const known = names.map(label);
  return [{
    type: "bar", orientation: "h", x: values, y: known, text: texts, textposition: "outside", cliponaxis: false, hovertemplate: "%{y}: %{text}<extra></extra>",
    marker: { color: colour("--series-1") }, textfont: { color: colour("--text") },
  }];
}

// To the right of the longest bar there is room for its label.
const barLayout = (xTitle, values) => layout({
  showlegend: false, hovermode: "closest", height: Math.max(130, 28 * values.length + 70),
  xaxis: { title: { text: xTitle }, range: [0, 1.2 * Math.max(1, ...values)] },
  yaxis: { autorange: "reversed", type: "category", title: { text: "" } },
});

// [id, title, sentence, traces, layout]
function figures(data) {
  const h = data.history;
  const times = h.at_ms;
  const later = times.slice(1);
  const conversions = data.conversions;
  const [bytesIn, bytesOut] = [rates(times, h.bytes_in, 1), rates(times, h.bytes_out, 1)];
  const [unit, unitBytes] = speedUnit(bytesIn, bytesOut);
  const inUnit = (values) => values.map((value) => (value === null ? null : value / unitBytes));
  const cpu = (key) => rates(times, h[`${key}_cpu_s`], 1);
  const memory = (key) => h[`${key}_rss_bytes`].map((value) => value / 1e6);
  const made = [
    ["throughput", "Bytes in against bytes out",
      `In all ${bytes(data.totals.bytes_in)} came in and ${bytes(data.totals.bytes_out)} went out. The difference was fetched twice, was dropped, or is in flight.`,
      [line("in", later, inUnit(bytesIn), 1), line("out", later, inUnit(bytesOut), 2, { line: { color: colour("--series-2"), width: 2, dash: "dot" } })],
      layout({ xaxis: timeAxis(), yaxis: valueAxis(unit, bytesIn, bytesOut) })],
    ["lag", "Lag",
      "Records at the source that are missing at the destination, including those of stopped partitions.",
      [line("records", times, h.lag_records, 1), line("seconds", times, h.lag_s, 2, { yaxis: "y2", line: { color: colour("--series-2"), width: 2, dash: "dot" } })],
      layout({
        xaxis: timeAxis(),
        yaxis: valueAxis("records", h.lag_records),
        yaxis2: { exponentformat: "none", ...valueAxis("seconds", h.lag_s), overlaying: "y", side: "right", rangemode: "tozero", tickmode: "auto", showgrid: false, zeroline: false, fixedrange: true, automargin: true },
      })],
    ["cpu", "CPU of the mirror", "Cores in use, user and system time. Executors on other machines count with their tasks, without their JVMs.",
      stacked(later, cpu), layout({ xaxis: timeAxis(), yaxis: valueAxis("cores", cpu("driver"), cpu("jvm"), cpu("tasks")) })],
    ["memory", "Memory of the mirror", "Resident memory. Memory that processes share is counted in each of them.",
      stacked(times, memory), layout({ xaxis: timeAxis(), yaxis: valueAxis("MB", memory("driver"), memory("jvm"), memory("tasks")) })],
  ];
  const gc = rates(times, h.jvm_gc_s, 1000);
  made.push(["gc", "Garbage collection of Spark's JVM", gcSentence(data.totals.gc_s),
    [line("Spark's JVM", later, gc, 2)],
    layout({ showlegend: false, xaxis: timeAxis(), yaxis: valueAxis("ms per second", gc) })]);
  const decisions = Object.entries(data.decisions).sort((one, other) => other[1] - one[1]);
  made.push(["decisions", isReport ? "Conversions avoided" : "Decisions", conversionSentence(conversions),
    bars(decisions.map(([name]) => name), decisions.map(([, count]) => count), decisions.map(([, count]) => integer(count))),
    barLayout("batches", decisions.map(([, count]) => count))]);
  const topics = data.topics.rows.filter((row) => row.bytes_per_batch !== null).slice(0, 12);
  made.push(["batches", "Batch sizes by topic",
    topics.length ? "Average bytes per batch, headers included. Small batches make a mirror slow." : "No batch was copied yet.",
    bars(topics.map((row) => row.topic), topics.map((row) => row.bytes_per_batch), topics.map((row) => bytes(row.bytes_per_batch))),
    barLayout("bytes per batch", topics.map((row) => row.bytes_per_batch))]);
  return made;
}

function gcSentence(seconds) {
  if (seconds === null) return "Spark's JVM has not started, or does not publish its garbage collections.";
  return `Spark's JVM paused for ${milliseconds(seconds)} in total to collect garbage. Records do not pass through the JVM: Python tasks copy them.`;
}

function conversionSentence({ unopened, opened, unopened_bytes: size, dropped }) {
  if (!unopened && !opened) return "No batch was copied yet.";
  const passed = size === null ? "" : ` with ${bytes(size)}`;
  return `${plural(unopened, "batch", "batches")}${passed} were copied unchanged, without decompression; ` +
    `${integer(opened)} were decoded; ${integer(dropped)} were dropped by their headers. A mirror that decodes opens every batch.`;
}

function place(id, title) {
  const chart = element("div", { id: `chart-${id}`, className: "chart", role: "img", "aria-label": title });
  const says = element("p", { id: `says-${id}`, className: "quiet" });
  return element("section", {}, element("h2", {}, title), chart, says);
}

function drawFigures(data) {
  const all = figures(data);
  // All places before the first figure: a figure is as wide as its place is then.
  const places = document.getElementById("figures");
  if (!places.childElementCount) places.append(...all.map(([id, title]) => place(id, title)));
  for (const [id, , sentence, traces, figureLayout] of all) {
    const chart = document.getElementById(`chart-${id}`);
    show(`says-${id}`, sentence, (text) => [text]);
    // Without bars the sentence alone remains.
    chart.hidden = traces.every(({ type, x }) => type === "bar" && !x.length);
    if (chart.hidden) continue;
    chart.style.height = figureLayout.height ? `${figureLayout.height}px` : "";
    Plotly.react(chart, traces, figureLayout, { displayModeBar: false, responsive: true });
  }
}

function showRanges() {
  if (isReport) return;
  const choices = [["recent", "Last 10 minutes"], ["whole", "Since the start"]];
  show("ranges", view.range, () => choices.map(([range, name]) =>
    element("button", { "aria-pressed": String(view.range === range), onclick: () => { view.range = range; poll(); } }, name)));
}

let latest = written;

function showAll() {
  if (latest === null) return;
  showWords(latest);
  showRanges();
  showTables(latest);
  drawFigures(latest);
}

// Live

let next = null;
let asked = 0;

async function poll() {
  clearTimeout(next);
  const mine = ++asked;
  try {
    const query = `range=${view.range}&partitions=${view.all ? "all" : "slowest"}`;
    // Not relative: fetch refuses an address with a user's name and password, as the page's may be.
    const answer = await fetch(`${location.origin}${location.pathname.replace(/[^/]*$/, "")}data.json?${query}`,
      { cache: "no-store", signal: AbortSignal.timeout(POLL_TIMEOUT_MS) });
    if (!answer.ok) throw new Error(`the mirror answers ${answer.status}`);
    const data = await answer.json();
    if (mine !== asked) return;
    latest = data;
    showAll();
  } catch (error) {
    if (mine !== asked) return;
    silent(error);
  }
  clearTimeout(next);
  if (!document.hidden) next = setTimeout(poll, POLL_MS);
}

function silent(error) {
  const words = "Not answering";
  show("state", ["warn", words], () => [words]);
  document.getElementById("state").className = "pill warn";
  document.title = `${words} – shoal`;
  const since = latest === null ? "" : ` The data below is from ${time(latest.now_ms)}.`;
  show("headline", `The mirror does not answer: it has ended, or is unreachable.${since}`, (text) => [text]);
  console.info(error.message);
}

// A hidden page sends no requests.
document.addEventListener("visibilitychange", () => { if (!isReport && !document.hidden) poll(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (latest !== null) drawFigures(latest); });

if (isReport) showAll();
else poll();
