// The dashboard: asks /v1/status every two seconds and shows what it says. Whatever the server sends is text here:
// it goes into the page by textContent and setAttribute only, never as markup.
"use strict";

const INTERVAL_MS = 2000;
const TIMEOUT_MS = 8000;
const PAGE_SIZE = 50;
const NODE_SAMPLES = 150; // five minutes
const TAG_SAMPLES = 45;
const SVG = "http://www.w3.org/2000/svg";

const $ = (id) => document.getElementById(id);

const view = { search: "", sort: "trouble", offset: 0 };
const history = { rate: [], lead: [], tags: new Map() };
let answeredAt = 0; // when the server answered last; 0: not yet
let failure = null;
let token = ""; // never stored: a page that is loaded again has none
let refused = null; // why the server wants a token, or another one
let asked = 0; // number of the newest question
let timer = 0;

// ---- words ------------------------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

function count(value) {
  return value < 100000 ? whole.format(value) : short.format(value);
}

function rate(value) {
  return value > 0 && value < 10 ? value.toFixed(1) : count(value);
}

function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return Math.round(seconds * 1000) + " ms";
  if (seconds < 120) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  if (seconds < 7200) return Math.round(seconds / 60) + " min";
  if (seconds < 172800) return Math.round(seconds / 3600) + " h";
  if (seconds < 730 * 86400) return Math.round(seconds / 86400) + " d";
  return count(seconds / (365.25 * 86400)) + " years";
}

// In the reader's time zone; the date only where it is not today.
function timeOf(ms) {
  const at = new Date(ms);
  const today = at.toDateString() === new Date().toDateString();
  return (today ? "" : at.toLocaleDateString("sv-SE") + " ") + at.toLocaleTimeString("sv-SE");
}

// ---- pieces of the page -----------------------------------------------------------------------------------------

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A line over its area; `top` is the value at the upper edge.
function drawChart(svg, samples, capacity, least) {
  const width = 100;
  const height = 40;
  if (!svg.firstChild) {
    svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    svg.setAttribute("preserveAspectRatio", "none");
    for (const name of ["area", "line"]) {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      svg.append(path);
    }
  }
  const top = Math.max(least, ...samples) * 1.1;
  const x = (i) => ((capacity - samples.length + i) / (capacity - 1)) * width;
  const y = (value) => height - 1 - (Math.max(0, value) / top) * (height - 2);
  const points = samples.map((value, i) => x(i).toFixed(2) + " " + y(value).toFixed(2));
  const line = points.length ? "M" + points.join("L") : "";
  svg.lastChild.setAttribute("d", line);
  svg.firstChild.setAttribute(
    "d", points.length ? line + "L" + width + " " + height + "L" + x(0).toFixed(2) + " " + height + "Z" : "");
}

function remember(samples, value, capacity) {
  samples.push(value);
  if (samples.length > capacity) samples.shift();
}

function showFacts(list, facts) {
  list.replaceChildren(...facts.flatMap(([name, value]) => [element("dt", "", name), element("dd", "", value)]));
}

// ---- problems ---------------------------------------------------------------------------------------------------

const PROBLEM_PARTS = [["span", "code"], ["span", "since"], ["span", "extra"], ["p", "effect"], ["p", "message quiet"],
  ["p", "step"]];

function makeProblem(cause) {
  const item = element("li");
  item.dataset.cause = cause;
  item.append(...PROBLEM_PARTS.map(([name, className]) => element(name, className)));
  const copy = element("button", "copy", "copy");
  copy.type = "button";
  item.lastChild.append(element("span", "hint"), copy);
  return item;
}

function fillProblem(item, problem) {
  item.className = problem.urgent ? "urgent" : "";
  const [title, since, extra, effect, message, step] = item.children;
  setText(title, problem.title);
  setText(since, problem.since_ms === undefined ? "" : "since " + timeOf(problem.since_ms));
  since.title = problem.since || "";
  const facts = [];
  const reserve = problem.shortest_reserve;
  if (reserve) facts.push("shortest reserve " + duration(reserve.seconds) + " (" + reserve.tag + ")");
  const unnamed = problem.tags_total - problem.tags.length;
  if (problem.tags_total > 1 || (problem.tags_total === 1 && !problem.title.startsWith("tag ")))
    facts.push("tags: " + problem.tags.join(", ") + (unnamed > 0 ? " and " + count(unnamed) + " more" : ""));
  setText(extra, facts.join(" · "));
  setText(effect, problem.effect);
  setText(message, problem.message);
  step.hidden = !problem.hint;
  setText(step.firstChild, problem.hint);
}

// One entry for each cause. What is selected in the list stays as it is, so that it can be read and copied.
function showProblems(problems) {
  const list = $("problem-list");
  const selection = getSelection();
  const held = !selection.isCollapsed && selection.containsNode(list, true);
  $("problem-held").hidden = !held;
  if (held) return;
  $("problems").hidden = problems.length === 0;
  setText($("problem-count"), problems.length > 1 ? String(problems.length) : "");
  const known = new Map([...list.children].map((item) => [item.dataset.cause, item]));
  const items = problems.map((problem) => known.get(problem.cause) || makeProblem(problem.cause));
  if (items.length !== list.children.length || items.some((item, i) => item !== list.children[i]))
    list.replaceChildren(...items);
  problems.forEach((problem, i) => fillProblem(items[i], problem));
}

// navigator.clipboard is there with https and on localhost only.
function copyHint(button) {
  getSelection().selectAllChildren(button.previousSibling);
  const copied = document.execCommand("copy");
  if (copied) getSelection().removeAllRanges();
  setText(button, copied ? "copied" : "selected: press Ctrl+C");
  setTimeout(() => setText(button, "copy"), INTERVAL_MS);
}

// ---- the node ---------------------------------------------------------------------------------------------------

function showNode(status) {
  const badge = $("ready");
  badge.className = "badge " + (status.ready ? "good" : "bad");
  setText(badge, status.ready ? "ready" : "not ready");
  setText($("node"), "leafctl " + status.version + " · up " + duration(status.uptime_ms / 1000) +
    " · " + status.listen.join(", ") + " · fence: " + status.fence);
  const access = status.access || {};
  $("open").hidden = !access.open;
  $("sign-in-open").hidden = Boolean(token) || access.tokens === null || access.tokens === undefined;
  document.title = (status.ready && status.causes.length === 0 ? "" : "! ") + "leafctl";
  showProblems(status.causes);
}

function showSegment(segment) {
  const facts = $("segment-facts");
  if (!segment.enabled) {
    showFacts(facts, [["state", "disabled"]]);
    return 0;
  }
  const totals = segment.totals;
  showFacts(facts, [
    ["table", segment.loaded ? segment.store : segment.store + ", not read yet"],
    ["tags", count(segment.tags_total) + (totals.frozen ? ", " + count(totals.frozen) + " frozen" : "") +
      (totals.paused ? ", " + count(totals.paused) + " paused" : "")],
    ["in reserve", count(totals.reserve)],
    ["issued", count(totals.issued)],
    ["wasted", count(totals.wasted)],
    ["waits", count(totals.waits)],
  ]);
  return totals.rate;
}

let snowflakeBefore = null;

function showSnowflake(snowflake, now) {
  const facts = $("snowflake-facts");
  if (!snowflake.enabled) {
    setText($("worker"), "");
    setText($("lead"), "–");
    showFacts(facts, [["state", "disabled"]]);
    return 0;
  }
  if (snowflake.worker === undefined) {
    setText($("worker"), "no worker number yet · " + snowflake.state);
    setText($("lead"), "–");
    showFacts(facts, [
      ["cluster", snowflake.cluster],
      ["registry", snowflake.registry],
    ]);
    return 0;
  }
  setText($("worker"), "worker " + snowflake.worker + " · " + snowflake.state);
  setText($("lead"), duration(snowflake.lead_ms / 1000));
  remember(history.lead, snowflake.lead_ms, NODE_SAMPLES);
  drawChart($("lead-chart"), history.lead, NODE_SAMPLES, 100);
  showFacts(facts, [
    ["number", snowflake.worker + ((snowflake.worker_source || "").startsWith("host name") ? " (" + snowflake.worker_source + ")" : "")],
    ["cluster", snowflake.cluster + (snowflake.private ? " (private: unique in this state directory only)" : "")],
    ["registry", snowflake.registry],
    ["ceiling left", duration(Math.max(0, snowflake.ceiling_ms - now - snowflake.lead_ms) / 1000)],
    ["issued", count(snowflake.issued)],
    ["lasts until", snowflake.exhausted_at.slice(0, 10)],
  ]);
  const before = snowflakeBefore;
  snowflakeBefore = { issued: snowflake.issued, at: now };
  if (!before || now <= before.at || snowflake.issued < before.issued) return 0;
  return (1000 * (snowflake.issued - before.issued)) / (now - before.at);
}

function showDependencies(dependencies) {
  $("dependencies").replaceChildren(...dependencies.map((dependency) => {
    const item = element("li");
    item.append(element("span", "state " + (dependency.up ? "good" : "bad"), dependency.up ? "up" : "unreachable"),
      element("span", "", dependency.name + ", " + dependency.kind));
    const facts = [];
    if (dependency.identity) facts.push(dependency.identity);
    if (dependency.connections_open !== undefined) facts.push(count(dependency.connections_open) + " connections");
    if (dependency.reconnects) facts.push(count(dependency.reconnects) + " reconnects");
    if (dependency.lease_left_ms !== undefined) facts.push("lease: " + duration(dependency.lease_left_ms / 1000));
    item.append(element("span", "quiet", facts.join(" · ")));
    return item;
  }));
}

// ---- tags -------------------------------------------------------------------------------------------------------

const LABELS = ["", "", "a second", "", "reserve", "lasts", "step", "issued", "waits", "errors", ""];
const CLASSES = ["name", "", "number", "rate", "reserve", "number", "number", "number", "number", "number", "act"];

function makeRow() {
  const row = element("tr");
  LABELS.forEach((label, i) => {
    const cell = element("td", CLASSES[i]);
    if (label) cell.setAttribute("data-label", label);
    row.append(cell);
  });
  const cells = row.children;
  cells[1].append(element("span", "state"));
  const spark = document.createElementNS(SVG, "svg");
  spark.setAttribute("class", "spark");
  cells[3].append(spark);
  const meter = element("span", "meter");
  meter.append(element("span"));
  cells[4].append(meter, element("span"));
  const change = element("button", "change");
  change.type = "button";
  cells[10].append(change);
  return row;
}

function fillRow(row, tag) {
  const cells = row.children;
  const samples = history.tags.get(tag.tag);
  const broken = tag.state === "frozen" || (tag.problem !== undefined && tag.state !== "paused");
  row.className = broken ? "trouble" : "";
  row.title = tag.problem ? tag.problem.message : "";
  setText(cells[0], tag.tag);
  const state = cells[1].firstChild;
  state.className = "state " + (broken ? "bad" : tag.state === "active" ? "good" : tag.state === "paused" ? "warn" : "");
  const strict = tag.order === "strict" ? " · strict" : "";
  setText(state, (broken && tag.state !== "frozen" ? "failing" : tag.state) + strict);
  setText(cells[2], rate(tag.rate));
  drawChart(cells[3].firstChild, samples, TAG_SAMPLES, 1);
  // Full is what the node wants to hold, and no less than a grant.
  const full = Math.max(tag.reserve_target, tag.step, tag.table_step, 1);
  const share = Math.min(1, tag.reserve / full);
  const meter = cells[4].firstChild;
  meter.className = "meter" + (share < 0.1 && tag.state === "active" && strict === "" ? " low" : "");
  meter.firstChild.style.width = (100 * share).toFixed(1) + "%";
  setText(cells[4].lastChild, count(tag.reserve));
  setText(cells[5], duration(tag.reserve_s));
  setText(cells[6], count(tag.step || tag.table_step));
  setText(cells[7], count(tag.issued));
  setText(cells[8], count(tag.waits));
  const change = cells[10].firstChild;
  change.dataset.tag = tag.tag;
  change.dataset.verb = tag.state === "paused" ? "resume" : "pause";
  setText(change, tag.state === "paused" ? "Resume" : "Pause");
  setText(cells[9], count(Object.values(tag.errors || {}).reduce((sum, n) => sum + n, 0)));
}

function showTags(segment) {
  $("tags").hidden = !segment.enabled;
  if (!segment.enabled) return;
  const seen = new Map();
  for (const tag of segment.tags) {
    const samples = history.tags.get(tag.tag) || [];
    remember(samples, tag.rate, TAG_SAMPLES);
    seen.set(tag.tag, samples);
  }
  history.tags = seen; // what is not shown is forgotten

  const rows = $("rows");
  while (rows.children.length > segment.tags.length) rows.lastChild.remove();
  while (rows.children.length < segment.tags.length) rows.append(makeRow());
  segment.tags.forEach((tag, i) => fillRow(rows.children[i], tag));

  const matching = segment.tags_matching;
  setText($("tag-count"), view.search ? count(matching) + " of " + count(segment.tags_total) : count(matching));
  $("no-tags").hidden = segment.tags.length > 0;
  setText($("no-tags"), matching > 0 ? "" : view.search ? "No tag matches." : "No tags yet: leafctl tag add NAME");
  const last = view.offset + segment.tags.length;
  setText($("page"), matching ? count(Math.min(view.offset + 1, last)) + "–" + count(last) + " of " + count(matching) : "");
  $("previous").disabled = view.offset === 0;
  $("next").disabled = last >= matching;
}

// ---- asking -----------------------------------------------------------------------------------------------------

function show(status) {
  showNode(status);
  const segmentRate = showSegment(status.segment);
  const total = segmentRate + showSnowflake(status.snowflake, status.time_ms);
  setText($("rate"), rate(total));
  remember(history.rate, total, NODE_SAMPLES);
  drawChart($("rate-chart"), history.rate, NODE_SAMPLES, 1);
  showDependencies(status.dependencies);
  showTags(status.segment);
}

function showLive() {
  document.body.classList.toggle("stale", failure !== null);
  document.body.classList.toggle("signed-in", Boolean(token));
  document.body.classList.toggle("unknown", refused !== null);
  $("sign-out").hidden = !token;
  if (refused !== null) {
    $("sign-in").hidden = false;
    setText($("sign-in-why"), refused);
    setText($("live"), "");
    $("ready").className = "badge";
    setText($("ready"), "signed out");
    setText($("node"), "");
    $("problems").hidden = true;
    $("sign-in-open").hidden = true;
    document.title = "leafctl";
    return;
  }
  if (!failure) {
    setText($("live"), answeredAt ? "live" : "");
    return;
  }
  setText($("live"), answeredAt ? "as of " + timeOf(answeredAt) : "no answer yet");
  $("ready").className = "badge bad";
  setText($("ready"), "no answer");
  document.title = "! leafctl";
  showProblems([{
    cause: "no_answer", urgent: true, title: "no answer from the daemon", tags: [], tags_total: 0,
    since_ms: answeredAt || undefined,
    effect: answeredAt ? "What is shown below is as it was at " + timeOf(answeredAt) + "." : "",
    message: "this page asked " + location.origin + ": " + failure, hint: "systemctl status leafctl",
  }]);
}

// A request with the token, if there is one.
function request(path, options) {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  return fetch(path, { ...options, headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
}

async function reasonIn(response) {
  const body = await response.json().catch(() => ({}));
  return body.message || "status " + response.status;
}

async function ask() {
  clearTimeout(timer);
  const number = ++asked;
  // A form's encoding would make a space a plus, which is a plus to the server.
  const query = "search=" + encodeURIComponent(view.search) + "&sort=" + view.sort + "&offset=" + view.offset +
    "&limit=" + PAGE_SIZE + "&problems=0";
  try {
    const response = await request("v1/status?" + query);
    if (response.status === 401 || response.status === 403) {
      const reason = await reasonIn(response);
      if (number !== asked) return;
      refused = reason;
      failure = null;
      showLive();
      return; // asked again after the next sign-in
    }
    if (!response.ok) throw new Error("status " + response.status);
    const status = await response.json();
    if (number !== asked) return; // something else was asked meanwhile
    // Tags went away under the page.
    if (status.segment.enabled && view.offset > 0 && view.offset >= status.segment.tags_matching) {
      view.offset = Math.max(0, Math.ceil(status.segment.tags_matching / PAGE_SIZE - 1)) * PAGE_SIZE;
      return ask();
    }
    answeredAt = Date.now();
    failure = null;
    refused = null;
    show(status);
  } catch (error) {
    if (number !== asked) return;
    failure = error.message;
  }
  showLive();
  timer = setTimeout(ask, INTERVAL_MS);
}

// ---- signing in, and changing ---------------------------------------------------------------------------------

function signIn(given) {
  token = given;
  $("token").value = "";
  $("sign-in").hidden = true;
  $("changed").hidden = true;
  ask();
}

function tell(text, good) {
  const line = $("changed");
  line.hidden = false;
  line.className = good ? "" : "bad";
  setText(line, text);
}

async function change(tag, verb) {
  const question = verb === "pause"
    ? "Pause tag " + tag + "? This node gives no IDs of it until it is resumed."
    : "Resume tag " + tag + "?";
  if (!confirm(question)) return;
  try {
    const response = await request("v1/segment/" + encodeURIComponent(tag) + "/" + verb, { method: "POST" });
    if (response.ok) tell("Tag " + tag + (verb === "pause" ? " is paused." : " is served again."), true);
    else tell("Tag " + tag + ": " + (await reasonIn(response)), false);
  } catch (error) {
    tell("Tag " + tag + ": " + error.message, false);
  }
  ask();
}

function turn(pages) {
  view.offset = Math.max(0, view.offset + pages * PAGE_SIZE);
  ask();
}

$("search").addEventListener("input", () => {
  view.search = $("search").value;
  view.offset = 0;
  ask();
});
$("sort").addEventListener("change", () => {
  view.sort = $("sort").value;
  view.offset = 0;
  ask();
});
$("problem-list").addEventListener("click", (event) => {
  if (event.target.classList.contains("copy")) copyHint(event.target);
});
$("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = $("token").value.trim();
  if (given) signIn(given);
});
$("sign-in-open").addEventListener("click", () => {
  $("sign-in").hidden = false;
  setText($("sign-in-why"), "");
  $("token").focus();
});
$("sign-out").addEventListener("click", () => signIn(""));
$("rows").addEventListener("click", (event) => {
  if (event.target.classList.contains("change")) change(event.target.dataset.tag, event.target.dataset.verb);
});
$("previous").addEventListener("click", () => turn(-1));
$("next").addEventListener("click", () => turn(1));
document.addEventListener("visibilitychange", () => {
  // The page is hidden: nothing is asked.
  if (document.hidden) clearTimeout(timer);
  else ask();
});
ask();
