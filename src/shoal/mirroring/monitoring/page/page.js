"use strict";
// Shows one object (its shape: page.py): polled from the mirror, or written into a report.

const LEAST_POLL_MS = 1000;
const POLL_TIMEOUT_MS = 10000;
// The state of 10,000 partitions takes a tenth of a second to make: a page takes at most a tenth of a core.
const POLL_PATIENCE = 10;
const RATE_WINDOW_MS = 10000;
// An idle task reports every 15 seconds.
const SILENT_S = 30;
const LONG_TRANSACTION_S = 60;
const ROWS_SHOWN = 100;
const NAMES_SHOWN = 20;

const written = JSON.parse(document.getElementById("data").textContent);
const isReport = written !== null;
const view = { search: "", sort: null, descending: false, all: false };

// Words and numbers

const integer = (value) => Math.round(value).toLocaleString("en");
const compact = (value) => (value < 1e7 ? integer(value) : scaled(value, ["", "k", "M", "G", "T"]));
const plural = (count, noun, many) => `${integer(count)} ${count === 1 ? noun : many || noun + "s"}`;
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const share = (part, whole) => (whole ? `${(Math.floor((part / whole) * 1000) / 10).toFixed(1)} %` : "–");
const orDash = (value, format) => (value === null || value === undefined ? "–" : format(value));
const bytes = (value) => scaled(value, ["B", "kB", "MB", "GB", "TB", "PB"]);
const cores = (value) => value.toFixed(2);
const sum = (values) => values.reduce((total, value) => total + (value || 0), 0);

function scaled(value, units) {
  let step = 0;
  while (Math.abs(value) >= 1000 && step < units.length - 1) { value /= 1000; step += 1; }
  const digits = step === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[step]}`.trim();
}

function duration(seconds) {
  if (seconds < 0.005) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.round(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.round(hours / 24)} days`;
}

// Year first, and with the time zone: a page is looked at from everywhere.
const time = (ms) => new Date(ms).toLocaleString("sv-SE", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  timeZoneName: "short",
});
const clock = (ms) => new Date(ms).toLocaleTimeString("sv-SE");

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

function drawn(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
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

const showText = (id, text) => show(id, text, () => [text]);
const heading = (text) => element("h2", {}, text);
const paragraphs = (sentences) => sentences.map((sentence) => element("p", {}, sentence));

// columns: [heading, class, cell of a row, value to sort by]
// The roles are explicit because browsers drop a table's own roles if style.css stacks its cells.
function table(caption, columns, rows, head = (column) => [column[0], {}]) {
  const heads = columns.map((column) => {
    const [content, properties] = head(column);
    return element("th", { scope: "col", role: "columnheader", className: column[1], ...properties }, content);
  });
  const body = rows.map((row) => element("tr", { role: "row" }, ...columns.map(([name, kind, cell]) =>
    element("td", { role: "cell", className: kind, "data-heading": name }, cell(row)))));
  const className = rows.length > 25 ? "scroll long" : "scroll";
  return element("div", { className, tabIndex: 0, role: "region", "aria-label": caption },
    element("table", { role: "table" }, element("caption", {}, caption),
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads)),
      element("tbody", { role: "rowgroup" }, ...body)));
}

// Rates between two states

const looks = [];
let before = null;

// The rows arrive as one list for each column.
function withRows(state) {
  const names = Object.keys(state.rows);
  const count = names.length ? state.rows[names[0]].length : 0;
  const rows = Array.from({ length: count }, (_, at) => {
    const row = Object.fromEntries(names.map((name) => [name, state.rows[name][at]]));
    row.name = `${row.topic}-${row.partition}`;
    return row;
  });
  return { ...state, rows };
}

function remember(state) {
  // A page that asks twice in a moment gets one state twice, between which nothing has a rate.
  if (looks.length && looks[looks.length - 1].at === state.now_ms) return;
  const look = {
    at: state.now_ms,
    bytes: new Map(state.rows.map((row) => [row.name, row.bytes_out])),
    cpu: new Map(state.processes.map((each) => [each.name, each.cpu_s])),
  };
  looks.push(look);
  while (looks.length > 2 && looks[1].at <= look.at - RATE_WINDOW_MS) looks.shift();
  before = looks[0] === look || look.at - looks[0].at > 2 * RATE_WINDOW_MS ? null : looks[0];
}

const seconds = () => (latest.now_ms - before.at) / 1000;
const rateOf = (row) => (before ? (row.bytes_out - (before.bytes.get(row.name) || 0)) / seconds() : null);
const coresOf = (process) =>
  (before && before.cpu.has(process.name) ? (process.cpu_s - before.cpu.get(process.name)) / seconds() : null);

// State, headline and tiles

const stateCount = (data, name) => data.states[name] || 0;
const isSilent = (data) => data.last_report_age_s > SILENT_S;

function stateWord(data) {
  if (data.ending) return data.ending.good ? ["good", "Ended"] : ["bad", "Ended with problems"];
  if (data.phase === "stopping") return ["busy", "Stopping"];
  const down = Object.keys(data.clusters_down);
  if (down.length) return ["bad", `${capital(down.join(" and "))} down`];
  if (isSilent(data)) return ["warn", "Silent"];
  if (stateCount(data, "stopped")) return ["bad", `${plural(stateCount(data, "stopped"), "partition")} stopped`];
  if (stateCount(data, "waiting")) return ["warn", `${plural(stateCount(data, "waiting"), "partition")} waiting`];
  if (data.last_report_age_s === null) return ["busy", "Starting"];
  return stateCount(data, "up to date") === data.partitions ? ["good", "Up to date"] : ["busy", "Copying"];
}

function headline(data) {
  if (data.ending) return data.ending.sentence;
  if (data.phase === "stopping") return "The mirror completes the requests in flight, commits, and ends.";
  const down = Object.values(data.clusters_down);
  if (down.length) return down.map(({ sentence, reason }) => `${capital(sentence)}: ${reason}.`).join(" ");
  if (data.last_report_age_s === null) {
    return `${capital(data.phase)} for ${duration(data.phase_s)}; no task has reported yet.`;
  }
  if (isSilent(data)) {
    return `No task has reported for ${duration(data.last_report_age_s)}, although tasks report twice a second. The numbers below may be out of date.`;
  }
  const speed = `${integer(data.records_per_s)} records/s, ${bytes(data.bytes_per_s)}/s`;
  if (!data.lag_records) {
    const stopped = stateCount(data, "stopped");
    return `All known records are copied${stopped ? `; ${plural(stopped, "partition")} stopped` : ""}. ${speed}.`;
  }
  const behind = [plural(data.lag_records, "record")];
  if (data.lag_s) behind.push(duration(data.lag_s));
  const left = data.remaining_s === null ? "" : `, about ${duration(data.remaining_s)} to go`;
  return `Behind by ${behind.join(", ")}${left}. ${speed}.`;
}

// Every partition is in one state, so these add up.
const stateCounts = ({ states }) => Object.entries(states).filter(([name, many]) => many || name === "up to date")
  .map(([name, many]) => `${integer(many)} ${name}`).join(", ");

function lagWords({ lag_s: age, held_back_records: heldBack }) {
  const words = age === null ? "records" : `records, ${duration(age)}`;
  return heldBack ? `${words}; ${compact(heldBack)} more in open transactions` : words;
}

// Offsets that the source skips are no batches.
function conversions({ decisions, batches }) {
  const unopened = decisions.copied || 0;
  return { unopened, opened: batches - unopened, dropped: sum(Object.values(decisions)) - batches - (decisions["skipped: gap"] || 0) };
}

function gcWords({ processes, ending }) {
  const known = ending && ending.jvm_gc ? [ending.jvm_gc] : processes.map((each) => each.gc).filter(Boolean);
  return known.length ? [duration(sum(known.map((gc) => gc.time_s))), `in ${plural(sum(known.map((gc) => gc.pauses)), "pause")} of Spark's JVM`] : ["–", "not published by Spark's JVM"];
}

function tiles(data) {
  const { unopened, opened } = conversions(data);
  const used = data.processes.map(coresOf);
  const memory = resident(data.history).reduce((most, value) => Math.max(most, value), 0);
  const now = sum(data.processes.map((each) => each.rss_bytes));
  const cpu = data.ending && data.ending.cpu_s !== null ? data.ending.cpu_s : sum(data.processes.map((each) => each.cpu_s));
  return [
    isReport
      ? ["Copied", bytes(data.bytes_out), `${plural(data.records, "record")} in ${plural(data.batches, "batch", "batches")}`]
      : ["Throughput", `${bytes(data.bytes_per_s)}/s`, `${integer(data.records_per_s)} records/s`],
    ["Lag", compact(data.lag_records), lagWords(data)],
    ["Partitions", integer(data.partitions), stateCounts(data)],
    ["Copied unopened", share(unopened, unopened + opened), `${plural(opened, "batch", "batches")} decoded`],
    isReport
      ? ["CPU per GB copied", data.bytes_out ? `${(cpu / (data.bytes_out / 1e9)).toFixed(2)} s` : "–", `${cpu.toFixed(1)} CPU-seconds since the start`]
      : ["CPU", before ? cores(sum(used)) : "–", "cores in use, last 10 seconds"],
    ["Memory", bytes(isReport ? memory : now), isReport ? "peak, all processes" : "all processes"],
    ["Garbage collection", ...gcWords(data)],
    [isReport ? "Ran for" : "Up for", duration(data.elapsed_s), plural(data.retries, "retry", "retries")],
  ];
}

// Sections

function byReason(rows, state) {
  const found = new Map();
  for (const row of rows.filter((each) => each.state === state)) {
    if (!found.has(row.reason)) found.set(row.reason, []);
    found.get(row.reason).push(row.name);
  }
  const reasons = [...found].map(([reason, names]) => ({ reason, names: names.slice(0, NAMES_SHOWN), count: names.length }));
  return reasons.length ? reasons.sort((one, other) => other.count - one.count) : null;
}

function namesOf({ names, count }) {
  const made = names.map((name, at) => element("span", { className: "whole" }, at + 1 < names.length ? `${name}, ` : name));
  if (count > names.length) made.push(` and ${integer(count - names.length)} more`);
  return element("span", {}, ...made);
}

function showTrouble(id, title, note, reasons) {
  show(id, reasons, () => [
    heading(`${title}: ${plural(sum(reasons.map((each) => each.count)), "partition")}`),
    table(note, [["Partitions", "name", namesOf], ["Reason", "reason", (row) => row.reason]], reasons),
  ]);
}

const orNull = (list) => (list.length ? list : null);

function showWords(data) {
  const [kind, word] = stateWord(data);
  showText("state", word);
  document.getElementById("state").className = `pill ${kind}`;
  showText("title", `${data.source} → ${data.destination}`);
  document.title = `${word} – ${data.source} → ${data.destination} – shoal`;
  const until = isReport ? ` to ${time(data.now_ms)}` : "";
  const started = data.now_ms - Math.round(data.elapsed_s) * 1000;
  showText("about", `${data.group === null ? "checking the clusters" : `group ${data.group}`} · ${isReport ? "from" : "since"} ${time(started)}${until} · shoal ${data.version}`);
  showText("headline", headline(data));
  show("tiles", tiles(data), (all) => all.map(([name, value, more]) =>
    element("div", { className: "tile" }, element("span", { className: "quiet" }, name),
      element("b", {}, value), element("span", { className: "quiet" }, more))));
}

function showSections(data) {
  showTrouble("stopped", "Stopped", "The mirror copies nothing of these partitions until you remove the reason.", byReason(data.rows, "stopped"));
  showTrouble("waiting", "Waiting", "These problems can end without you. The mirror retries until they do.", byReason(data.rows, "waiting"));
  const openLong = data.rows.filter((row) => row.held_back_since !== null && data.now_ms / 1000 - row.held_back_since >= LONG_TRANSACTION_S);
  show("held_back", orNull(openLong.map(({ name, held_back_records: records, held_back_since: since }) => ({ name, records, since }))), (rows) => [
    heading("Open transactions at the source"),
    table("A read_committed consumer, such as the mirror, reads no record after the start of an open transaction. kafka-transactions.sh find-hanging lists these transactions.", [
      ["Partition", "name", (row) => row.name],
      ["Held back, records", "number", (row) => integer(row.records)],
      ["Seen since", "", (row) => time(row.since * 1000)],
    ], rows),
  ]);
  show("incidents", orNull(data.incidents.filter((each) => each.continued)), (rows) => [
    heading("Incidents"),
    table("The mirror continued after these incidents. Lost records stay lost.", [
      ["Partition", "name", (row) => row.partition],
      ["Incident", "", (row) => row.kind],
      ["Lost", "number", (row) => orDash(row.lost, integer)],
      ["Reason", "reason", (row) => row.reason],
    ], rows),
  ]);
  show("steering", orNull(data.steering.sentences), (sentences) => [heading("Steering"), ...paragraphs(sentences)]);
  const compared = data.followed.map((row) => ({ ...row, age: duration(Math.max(0, data.now_ms / 1000 - row.at_s)) }));
  document.getElementById("followed").classList.toggle("warn", compared.some((row) => row.differing));
  show("followed", orNull(compared), (rows) => [
    heading("Configurations and ACLs"),
    element("p", {}, `${rows.map(comparisonWords).join("; ")}.`),
    ...(rows.some((row) => row.sentences.length) ? [table("The destination differs from the source in these. The mirror changes only what its options name.", [
      ["What", "", (row) => row.kind],
      ["Synced", "", (row) => (row.is_synced ? "yes" : "no")],
      ["Difference", "reason", (row) => row.sentence],
    ], rows.flatMap((row) => row.sentences.map((sentence) => ({ ...row, sentence }))))] : []),
  ]);
  show("consumer_groups", data.consumer_groups, (groups) => [
    heading("Consumer groups"),
    element("p", {}, groupWords(groups)),
    ...(groups.failure ? [element("p", {}, `The last translation failed: ${groups.failure}`)] : []),
    ...(groups.left_alone.length ? [element("p", {}, `Active at the destination, so left alone: ${groups.left_alone.join(", ")}`)] : []),
    ...Object.entries(groups.problems).map(([name, problem]) => element("p", {}, `${name}: ${problem}`)),
  ]);
  show("warnings", orNull(data.warnings), (sentences) => [heading("Warnings"), ...paragraphs(sentences)]);
  show("decisions", [data.decisions, data.batches], () => [
    heading(isReport ? "Conversions avoided" : "Decisions"),
    element("p", { id: "conversions" }, conversionSentence(data)),
    ...(data.batches ? [barTable("Batches by decision.", ["Decision", "Batches"],
      Object.entries(data.decisions).sort((one, other) => other[1] - one[1]), integer)] : []),
  ]);
  showTopics(data);
  show("processes", data.processes.map((each) => ({ ...each, cores: coresOf(each), partitions: data.rows.filter((row) => row.process === each.name).length })), (processes) => [
    heading("Processes"),
    table("Each task of Spark runs in a Python process of its own. Spark keeps idle processes for later tasks.", [
      ["Process", "name", (row) => row.name],
      ["Kind", "", (row) => KINDS[row.role]],
      ["Partitions", "number", (row) => (row.role === "worker" ? integer(row.partitions) : "–")],
      ["CPU, cores", "number", (row) => orDash(row.cores, cores)],
      ["CPU-seconds", "number", (row) => row.cpu_s.toFixed(1)],
      ["Memory", "number", (row) => bytes(row.rss_bytes)],
    ].filter(([name]) => !(isReport && name === "CPU, cores")), processes),
  ]);
}

const KINDS = { driver: "driver", jvm: "Spark's JVM", worker: "task" };

const ago = (age) => `${age} ${isReport ? "before the end" : "ago"}`;

const comparisonWords = ({ kind, is_synced: synced, differing, age }) =>
  `${kind}${synced ? ", synced" : ""}: ${differing ? `${integer(differing)} differ` : "no differences"}, compared ${ago(age)}`;

function groupWords(groups) {
  const counts = (numbers) => Object.entries(numbers).filter(([, count]) => count).map(([name, count]) => `${integer(count)} ${name}`).join(", ");
  const age = groups.age_s === null ? "not translated yet" : `translated ${ago(duration(groups.age_s))}`;
  return [`${plural(groups.groups, "group")}, ${age}`, counts(groups.offsets), counts(groups.actions)].filter(Boolean).join("; ") + ".";
}

function conversionSentence(data) {
  const { unopened, opened, dropped } = conversions(data);
  if (!unopened && !opened) return "No batch was copied yet.";
  // The mirror counts bytes by partition, not by decision.
  const size = opened ? "" : ` with ${bytes(data.bytes_out)}`;
  return `${plural(unopened, "batch", "batches")}${size} were copied unchanged, without decompression; ` +
    `${integer(opened)} were decoded; ${integer(dropped)} were dropped by their headers. A mirror that decodes opens every batch.`;
}

function barTable(caption, [first, second], entries, format) {
  const most = Math.max(...entries.map(([, value]) => value));
  const bar = (value) => {
    const made = element("span", { className: "bar" });
    made.style.width = `${(6 * value) / most}rem`;
    return element("span", {}, made, format(value));
  };
  return table(caption, [[first, "name", ([name]) => name], [second, "", ([, value]) => bar(value)]], entries);
}

function showTopics(data) {
  const topics = new Map();
  for (const row of data.rows) {
    const topic = topics.get(row.topic) || { topic: row.topic, partitions: 0, records: 0, batches: 0, bytes_out: 0 };
    topic.partitions += 1;
    for (const name of ["records", "batches", "bytes_out"]) topic[name] += row[name];
    topics.set(row.topic, topic);
  }
  const rows = [...topics.values()].sort((one, other) => other.bytes_out - one.bytes_out);
  show("topics", orNull(rows.slice(0, ROWS_SHOWN)), (few) => [
    heading("Sizes of batches"),
    barTable("Average bytes per batch, headers included. Small batches make a mirror slow.", ["Topic", "Bytes per batch"],
      few.filter((row) => row.batches).slice(0, 12).map((row) => [row.topic, row.bytes_out / row.batches]), bytes),
    table(`${plural(rows.length, "topic")}${few.length < rows.length ? `, the ${few.length} with the most bytes` : ""}.`, [
      ["Topic", "name", (row) => row.topic],
      ["Partitions", "number", (row) => integer(row.partitions)],
      ["Records", "number", (row) => integer(row.records)],
      ["Bytes out", "number", (row) => bytes(row.bytes_out)],
      ["Records per batch", "number", (row) => (row.batches ? (row.records / row.batches).toFixed(1) : "–")],
    ], few),
  ]);
}

// The table of partitions

const TROUBLE = { stopped: 0, waiting: 1 };
const slowness = (row) => [TROUBLE[row.state] === undefined ? 2 : TROUBLE[row.state], -(row.lag_s || 0), -(row.lag_records || 0)];
const partitionState = ({ state: name }) => element("span", { className: `state-${name.replaceAll(" ", "-")}` }, name);

const COLUMNS = [
  ["Partition", "name", (row) => row.name, (row) => row.name],
  ["State", "", partitionState, (row) => row.state],
  ["Lag, records", "number", (row) => orDash(row.lag_records, integer), (row) => row.lag_records],
  ["Lag, time", "number", (row) => orDash(row.lag_s, duration), (row) => row.lag_s],
  ["Records", "number", (row) => integer(row.records), (row) => row.records],
  ["Bytes out", "number", (row) => bytes(row.bytes_out), (row) => row.bytes_out],
  ["Rate", "number", (row) => orDash(rateOf(row), (value) => `${bytes(value)}/s`), (row) => rateOf(row)],
  ["Last commit", "number", (row) => orDash(row.committed_at, (at) => ago(duration(Math.max(0, latest.now_ms / 1000 - at)))), (row) => row.committed_at],
  ["Process", "", (row) => orDash(row.process, String), (row) => row.process || ""],
].filter(([name]) => !(isReport && name === "Rate"));

function compared(one, other) {
  if (Array.isArray(one)) return one.map((each, at) => each - other[at]).find(Boolean) || 0;
  if (typeof one === "string") return one.localeCompare(other, "en", { numeric: true });
  return (one === null ? -1 : one) - (other === null ? -1 : other);
}

function sorted(rows) {
  const column = COLUMNS.find(([name]) => name === view.sort);
  const key = column ? column[3] : slowness;
  const keyed = rows.map((row) => [key(row), row]).sort(([one], [other]) => compared(one, other));
  return (column && view.descending ? keyed.reverse() : keyed).map(([, row]) => row);
}

function sortButton([name, kind]) {
  const direction = view.sort !== name ? "none" : view.descending ? "descending" : "ascending";
  const sort = () => {
    view.descending = view.sort === name ? !view.descending : kind === "number";
    view.sort = name;
    showPartitions(latest);
    [...document.querySelectorAll("#partitions th button")].find((each) => each.textContent === name).focus();
  };
  return [element("button", { type: "button", onclick: sort }, name), { "aria-sort": direction }];
}

function showPartitions(data) {
  const words = view.search.toLowerCase().split(/\s+/);
  const matches = (row) => {
    const text = `${row.name} ${row.state} ${row.reason || ""} ${row.process || ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const found = sorted(data.rows.filter(matches));
  const rows = view.all ? found : found.slice(0, ROWS_SHOWN);
  const order = view.sort ? "" : "; stopped and waiting ones come first, then the furthest behind";
  const caption = rows.length < found.length ? `${integer(rows.length)} of ${plural(found.length, "partition")}${order}.` : `${plural(found.length, "partition")}${order}.`;
  show("partitions", [rows, caption, view, before && data.now_ms], () => [
    table(caption, COLUMNS, rows, sortButton),
    ...(found.length > ROWS_SHOWN ? [element("p", {}, element("button", { id: "all", type: "button", onclick: () => { view.all = !view.all; showPartitions(latest); } },
      view.all ? `Only ${ROWS_SHOWN}` : `Show all ${integer(found.length)}`))] : []),
  ]);
}

// Line charts of the last hour

const ROLES = [["driver", "driver"], ["jvm", "Spark's JVM"], ["worker", "tasks"]];
const resident = (h) => h.at_ms.map((_, at) => sum(ROLES.map(([role]) => h[`${role}_rss_bytes`][at])));

// Rates between two samples each; the first one has none.
const rates = (h, counts) => counts.map((count, at) =>
  (at ? Math.max(0, count - counts[at - 1]) / Math.max(1e-3, (h.at_ms[at] - h.at_ms[at - 1]) / 1000) : null));

const charts = ({ history: h }) => [
  ["lag-records", "Lag, records", integer, [["records", h.lag_records]]],
  ["lag-time", "Lag, time", duration, [["time", h.lag_s]]],
  ["rate", "Rate", (value) => `${bytes(value)}/s`, [["bytes in", rates(h, h.bytes_in)], ["bytes out", rates(h, h.bytes_out)]]],
  ["cpu", "CPU, cores", cores, ROLES.map(([role, name]) => [name, rates(h, h[`${role}_cpu_s`])])],
  ["memory", "Resident memory", bytes, ROLES.map(([role, name]) => [name, h[`${role}_rss_bytes`]])],
];

function roundedUp(value) {
  const step = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * step).find((each) => each >= value);
}

const LEFT = 74;
const TOP = 8;
const BOTTOM = 22;

function chart(place, times, format, series) {
  const width = Math.max(place.clientWidth, 200);
  const height = 192;
  const values = series.flatMap(([, each]) => each).filter((each) => each !== null);
  const top = roundedUp(Math.max(...values, 1e-9));
  const [first, last] = [times[0], times[times.length - 1]];
  const x = (at) => LEFT + ((times[at] - first) / Math.max(1, last - first)) * (width - LEFT - 4);
  const y = (value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
  const lines = [0, 0.5, 1].flatMap((part) => [
    drawn("line", { class: "grid-line", x1: LEFT, x2: width, y1: y(part * top), y2: y(part * top) }),
    drawn("text", { x: LEFT - 6, y: y(part * top) + 4, "text-anchor": "end" }, format(part * top)),
  ]);
  const ends = [drawn("text", { x: LEFT, y: height - 4 }, clock(first)),
    drawn("text", { x: width, y: height - 4, "text-anchor": "end" }, clock(last))];
  const curves = series.map(([, each], number) => drawn("polyline", { class: `series-${number + 1}`,
    points: each.map((value, at) => (value === null ? "" : `${x(at).toFixed(1)},${y(value).toFixed(1)}`)).join(" ") }));
  const cursor = drawn("line", { class: "cursor", y1: TOP, y2: height - BOTTOM, x1: -9, x2: -9 });
  const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" }, ...lines, ...ends, ...curves, cursor);
  const legend = element("div", { className: "legend quiet" });
  const describe = (at) => legend.replaceChildren(...series.map(([name, each], number) => element("span", {},
    drawn("svg", { viewBox: "0 0 24 8" }, drawn("line", { class: `series-${number + 1}`, x1: 0, x2: 24, y1: 4, y2: 4 })),
    `${name} ${orDash(each[at], format)}`)), ...(at === times.length - 1 ? [] : [clock(times[at])]));
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const wanted = first + ((event.clientX - box.left - LEFT) / Math.max(1, box.width - LEFT - 4)) * (last - first);
    const at = times.reduce((best, each, index) => (Math.abs(each - wanted) < Math.abs(times[best] - wanted) ? index : best), 0);
    cursor.setAttribute("x1", x(at));
    cursor.setAttribute("x2", x(at));
    describe(at);
  });
  picture.addEventListener("pointerleave", () => { cursor.setAttribute("x1", -9); cursor.setAttribute("x2", -9); describe(times.length - 1); });
  describe(times.length - 1);
  place.replaceChildren(picture, legend);
}

function drawCharts(data) {
  const all = charts(data);
  const places = document.getElementById("charts");
  // All places before the first chart: a chart is as wide as its place is then.
  if (!places.childElementCount) {
    places.append(...all.map(([id, title]) => element("section", {}, heading(title),
      element("div", { id: `chart-${id}`, className: "chart", role: "img", "aria-label": `${title}, the last hour` }))));
  }
  for (const [id, , format, series] of all) {
    const place = document.getElementById(`chart-${id}`);
    if (!place.matches(":hover")) chart(place, data.history.at_ms, format, series);
  }
}

// All of it

let latest = written === null ? null : withRows(written);

function showAll() {
  if (latest === null) return;
  showWords(latest);
  showSections(latest);
  showPartitions(latest);
  drawCharts(latest);
}

document.getElementById("search").addEventListener("input", (event) => {
  view.search = event.target.value;
  if (latest !== null) showPartitions(latest);
});
addEventListener("resize", () => { if (latest !== null) drawCharts(latest); });

// Live

let next = null;
let asked = 0;

async function poll() {
  clearTimeout(next);
  const mine = ++asked;
  const began = performance.now();
  try {
    // Not relative: fetch refuses an address with a user's name and password, as the page's may be.
    const answer = await fetch(`${location.origin}${location.pathname.replace(/[^/]*$/, "")}state.json`,
      { cache: "no-store", signal: AbortSignal.timeout(POLL_TIMEOUT_MS) });
    if (!answer.ok) throw new Error(`the mirror answers ${answer.status}`);
    const data = withRows(await answer.json());
    if (mine !== asked) return;
    latest = data;
    remember(data);
    showAll();
  } catch (error) {
    if (mine !== asked) return;
    silent(error);
  }
  clearTimeout(next);
  const pause = Math.max(LEAST_POLL_MS, POLL_PATIENCE * (performance.now() - began));
  if (!document.hidden) next = setTimeout(poll, pause);
}

function silent(error) {
  const words = "Not answering";
  showText("state", words);
  document.getElementById("state").className = "pill warn";
  document.title = `${words} – shoal`;
  const since = latest === null ? "" : ` The data below is from ${time(latest.now_ms)}.`;
  showText("headline", `The mirror does not answer: it has ended, or is unreachable.${since}`);
  console.info(error.message);
}

// A hidden page sends no requests.
document.addEventListener("visibilitychange", () => { if (!isReport && !document.hidden) poll(); });

if (isReport) showAll();
else poll();
