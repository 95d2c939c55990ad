// The form of a stored entry: preview its next slots, save it through the HTTP API, show mistakes beside fields.
(function () {
  "use strict";

  var form = document.querySelector("form[data-entry-form]");
  if (!form || !window.celeryCatchup) { return; }
  var callApi = window.celeryCatchup.callApi;
  var before = JSON.parse(form.dataset.entry);
  var revision = before && before.revision;
  var place = document.getElementById("cu-next");
  var noteBox = document.getElementById("cu-form-note");

  function field(name) { return document.getElementById("cu-f-" + name); }

  function make(name, text, className) {
    var element = document.createElement(name);
    if (text) { element.textContent = text; }
    if (className) { element.className = className; }
    return element;
  }

  // -- from the fields to the request ------------------------------------------------------------

  function parseJson(where, text, kind, mistakes) {
    try {
      var value = JSON.parse(text);
      if (kind === "list" ? Array.isArray(value) : value && typeof value === "object" && !Array.isArray(value)) { return value; }
      mistakes.push({ where: where, problem: "expected " + (kind === "list" ? "a list such as [1, \"a\"]" : "an object such as {\"day\": 1}") });
    } catch (error) {
      mistakes.push({ where: where, problem: "expected JSON: " + error.message });
    }
    return undefined;
  }

  function readSchedule(mistakes) {
    var kind = field("kind").value;
    var text = field("schedule").value.trim();
    if (kind === "every" || kind === "at") { return { [kind]: text }; }
    if (kind === "cron") { return text; }
    try {
      return JSON.parse(text);
    } catch (error) {
      mistakes.push({ where: "schedule", problem: "expected JSON: " + error.message });
      return undefined;
    }
  }

  // A value that is not of its kind is sent as it is written: the server says what it expects.
  function policyValue(input) {
    var text = input.value.trim();
    if (input.dataset.kind === "text" || input.dataset.kind === "choice") { return text; }
    try { return JSON.parse(text); } catch (error) { return text; }
  }

  function readPolicy() {
    if (form.elements.recovers.value === "off") { return false; }
    var policy = {};
    form.querySelectorAll("[data-policy]").forEach(function (input) {
      if (input.value.trim()) { policy[input.dataset.policy] = policyValue(input); }
    });
    return policy;
  }

  function readLabels(mistakes) {
    var labels = {};
    field("labels").value.split("\n").forEach(function (line) {
      var at = line.indexOf("=");
      if (at > 0) {
        labels[line.slice(0, at).trim()] = line.slice(at + 1).trim();
      } else if (line.trim()) {
        mistakes.push({ where: "labels", problem: "expected name=value on each line, got " + line.trim() });
      }
    });
    return labels;
  }

  function readForm() {
    var mistakes = [];
    var body = {
      task: field("task").value.trim(),
      schedule: readSchedule(mistakes),
      catchup: readPolicy(),
      description: field("description").value,
      labels: readLabels(mistakes),
      enabled: field("enabled").checked,
    };
    [["args", "list", "[]"], ["kwargs", "object", "{}"], ["options", "object", "{}"]].forEach(function (one) {
      body[one[0]] = parseJson(one[0], field(one[0]).value.trim() || one[2], one[1], mistakes);
    });
    if (!before) { body.name = field("name").value.trim(); }
    return { body: body, mistakes: mistakes };
  }

  // -- mistakes ------------------------------------------------------------------------------

  function clearMistakes(box) {
    (box || form).querySelectorAll(".cu-mistake").forEach(function (one) { one.remove(); });
    (box || form).querySelectorAll("[aria-invalid]").forEach(function (input) {
      input.removeAttribute("aria-invalid");
      input.setAttribute("aria-describedby", (input.getAttribute("aria-describedby") || "").split(" ")[0]);
    });
  }

  // The field of "catchup.window[1]" is that of "catchup.window", else that of "catchup".
  function boxOf(where) {
    for (var name = where; name; name = name.replace(/[.[][^.[]*$|^[^.[]*$/, "")) {
      var found = form.querySelector("[data-field=\"" + CSS.escape(name) + "\"]");
      if (found) { return found; }
    }
    return null;
  }

  function showMistakes(mistakes, focus) {
    var elsewhere = [];
    mistakes.forEach(function (one, index) {
      var box = boxOf(one.where);
      if (!box) {
        elsewhere.push(one.where + ": " + one.problem);
        return;
      }
      var input = box.querySelector("input, select, textarea");
      var inner = one.where.slice(box.dataset.field.length).replace(/^\./, "");
      var text = make("p", (inner ? inner + ": " : "") + one.problem, "cu-mistake");
      text.id = "cu-mistake-" + index;
      (box.querySelector(".cu-help") || box).before(text);
      if (!box.querySelector(".cu-help")) { box.append(text); }
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-describedby", ((input.getAttribute("aria-describedby") || "") + " " + text.id).trim());
      if (focus && box.closest("details")) { box.closest("details").open = true; }
    });
    var first = form.querySelector("[aria-invalid]");
    if (focus && first) { first.focus(); }
    return elsewhere;
  }

  function showNote(text, kind) {
    noteBox.textContent = "";
    if (!text) { return null; }
    var note = make("div", "", "cu-note cu-" + kind);
    text.split("\n").forEach(function (line) { note.append(make("div", line)); });
    noteBox.append(note);
    return note;
  }

  // -- the preview ---------------------------------------------------------------------------

  function slotTime(text) { return text.slice(0, 16).replace("T", " ") + (/:00(\.000)?(Z|[+-])/.test(text.slice(16)) ? "" : text.slice(16, 19)); }

  function drawSlots(found) {
    place.textContent = "";
    if (!found.slots.length) {
      place.append(make("p", "This schedule has no slots to come.", "cu-small"));
      return;
    }
    var table = make("table", "", "cu-table cu-upcoming");
    var head = make("tr");
    table.append(make("caption", "The next slots, in the entry's zone and in UTC", "cu-hidden"), make("thead"), make("tbody"));
    table.tHead.append(head);
    [found.timezone, "UTC"].forEach(function (words) {
      var cell = make("th", words);
      cell.scope = "col";
      head.append(cell);
    });
    found.slots.forEach(function (slot) {
      var row = table.tBodies[0].insertRow();
      var zone = slot.timezone === found.timezone ? "" : " " + slot.timezone;
      var role = slot.role === "start" ? "" : " " + slot.role;
      var local = make("time", slotTime(slot.localTime) + " " + slot.localTime.slice(-6).replace(/.*Z$/, "") + zone + role);
      local.dateTime = slot.localTime;
      var utc = make("time", slotTime(slot.scheduledTime));
      utc.dateTime = slot.scheduledTime;
      row.insertCell().append(local);
      row.insertCell().append(utc);
    });
    place.append(table);
  }

  function previewOf(body) {
    var asked = { schedule: body.schedule, catchup: body.catchup };
    if (before) { asked.name = before.name; }
    return callApi("POST", "/entries/preview", asked);
  }

  var asking = 0;

  async function updatePreview() {
    if (form.dataset.noApi || !field("schedule").value.trim()) { return; }
    var number = ++asking;
    var read = readForm();
    var mistakes = read.mistakes.filter(function (one) { return one.where === "schedule"; });
    var found = null;
    if (!mistakes.length) {
      try {
        found = await previewOf(read.body);
      } catch (error) {
        mistakes = (error.problem && error.problem.mistakes) || [];
        if (!mistakes.length) { mistakes = [{ where: "", problem: error.message }]; }
      }
    }
    if (number !== asking) { return; }
    if (found) { drawSlots(found); return; }
    place.textContent = "";
    var list = make("ul", "", "cu-lines");
    mistakes.forEach(function (one) { list.append(make("li", (one.where ? one.where + ": " : "") + one.problem)); });
    place.append(list);
  }

  // -- saving --------------------------------------------------------------------------------

  function save(body, dryRun) {
    var sent = Object.assign({}, body, dryRun ? { dryRun: true } : {});
    if (!before) { return callApi("POST", "/entries", sent); }
    var path = "/entries/" + encodeURIComponent(before.name) + "/update";
    return callApi("POST", path, sent, { "If-Match": "\"" + revision + "\"" });
  }

  // Every mistake at once: also those of the schedule and the policy, which the server judges last.
  async function allMistakes(read, problem) {
    var found = (problem && problem.mistakes) || [];
    try {
      if (read.body.schedule !== undefined) { await previewOf(read.body); }
    } catch (error) {
      found = found.concat((error.problem && error.problem.mistakes) || []);
    }
    var own = read.mistakes.map(function (one) { return one.where; });
    var seen = new Set();
    return read.mistakes.concat(found.filter(function (one) {
      var key = one.where + "\n" + one.problem;
      return !own.includes(one.where) && !seen.has(key) && seen.add(key);
    }));
  }

  var COMPARED = ["task", "schedule", "args", "kwargs", "options", "catchup", "description", "labels", "enabled"];

  async function showConflict() {
    var theirs = null;
    try { theirs = await callApi("GET", "/entries/" + encodeURIComponent(before.name)); } catch (error) { theirs = null; }
    if (!theirs) {
      showNote("The entry was deleted meanwhile. Nothing was saved.", "error");
      return;
    }
    var changed = COMPARED.filter(function (name) { return JSON.stringify(theirs[name]) !== JSON.stringify(before[name]); });
    var note = showNote(
      "Changed by " + (theirs.changedBy || "someone else") + " meanwhile, at " + theirs.changedAt + ": " +
      (changed.join(", ") || "the same fields as before") + ". Nothing was saved.", "warn");
    var choices = make("p", "", "cu-act");
    var reload = make("a", "Show the changed entry", "cu-btn");
    reload.href = location.href;
    var over = make("button", "Save mine over it", "cu-btn");
    over.type = "button";
    over.addEventListener("click", function () {
      revision = theirs.revision;
      submit();
    });
    choices.append(reload, over);
    note.append(choices);
    reload.focus();
  }

  async function showFailure(read, error) {
    var problem = error && error.problem;
    var code = problem && problem.code;
    if (code === "entry_changed" || (before && code === "unknown_entry")) { return showConflict(); }
    if (code === "entry_exists") { problem = { mistakes: [{ where: "name", problem: problem.detail }] }; }
    var mistakes = await allMistakes(read, problem);
    if (!mistakes.length) { return showNote(error.message, "error"); }
    var elsewhere = showMistakes(mistakes, true);
    var count = mistakes.length === 1 ? "1 mistake" : mistakes.length + " mistakes";
    return showNote([count + "; nothing was saved."].concat(elsewhere).join("\n"), "error");
  }

  var busy = false;

  async function submit() {
    if (busy) { return; }
    busy = true;
    clearMistakes();
    showNote("");
    var read = readForm();
    try {
      var wrong = read.mistakes.length > 0;
      var saved = await save(read.body, wrong);
      if (wrong) {
        await showFailure(read, null);
      } else {
        location.assign(form.dataset.then + "?search=" + encodeURIComponent(saved.name));
      }
    } catch (error) {
      await showFailure(read, error);
    }
    busy = false;
  }

  // -- events --------------------------------------------------------------------------------

  function showKind() {
    var chosen = field("kind").selectedOptions[0];
    field("schedule").placeholder = chosen.dataset.example;
    field("schedule").rows = chosen.value === "json" ? 4 : 1;
  }

  function showPolicy() {
    form.querySelector(".cu-policy").hidden = form.elements.recovers.value === "off";
  }

  var soon = null;
  var policyTouched = Boolean(before);

  function changed(event) {
    var box = event.target.closest("[data-field]");
    if (box) { clearMistakes(box); }
    policyTouched = policyTouched || event.target.name === "recovers";
    if (event.target === field("kind")) {
      showKind();
      if (!policyTouched) {
        var once = field("kind").value === "at";
        form.elements.recovers.value = once ? "policy" : "off";
        document.getElementById("cu-p-window").value = once ? form.dataset.oneOffWindow : "";
      }
    }
    showPolicy();
    clearTimeout(soon);
    soon = setTimeout(updatePreview, 250);
  }

  form.addEventListener("input", changed);
  form.addEventListener("change", changed);

  form.addEventListener("submit", function (event) {
    event.preventDefault();
    if (!form.querySelector("[aria-disabled=true]")) { submit(); }
  });

  showKind();
  updatePreview();
}());
