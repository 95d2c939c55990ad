// The Catch-up tab: update open pages, call the HTTP API from buttons, show times in the reader's time zone.
// The server writes all markup; this file only moves elements, so text never becomes markup here.
(function () {
  "use strict";

  var page = document.querySelector(".cu");
  if (!page) { return; }
  var every = Number(page.dataset.every) * 1000;
  // From the origin: fetch() refuses a URL with a password, as some bookmarks have.
  var api = location.origin + page.dataset.api;

  // -- messages -----------------------------------------------------------------------------

  var messages = page.querySelector(".cu-says");

  function showMessage(text, kind) {
    var note = document.createElement("div");
    note.className = "cu-note" + (kind ? " cu-" + kind : "");
    note.setAttribute("role", kind === "error" ? "alert" : "status");
    note.textContent = text;
    messages.append(note);
    setTimeout(function () { note.remove(); }, kind === "error" ? 15000 : 6000);
  }

  // Ask in a dialog; resolve to the value of the pressed button, or "".
  function confirmInDialog(text, choices) {
    var dialog = document.createElement("dialog");
    var words = document.createElement("p");
    var form = document.createElement("form");
    dialog.className = "cu-dialog";
    dialog.setAttribute("aria-label", "Confirm");
    form.method = "dialog";
    form.className = "cu-choices";
    words.textContent = text;
    [["", "Back"]].concat(choices).forEach(function (choice, index, all) {
      var button = document.createElement("button");
      button.value = choice[0];
      button.textContent = choice[1];
      button.className = "cu-btn" + (index === all.length - 1 ? " cu-primary" : "");
      button.autofocus = index === 0;
      form.append(button);
    });
    dialog.append(words, form);
    page.append(dialog);
    dialog.showModal();
    return new Promise(function (resolve) {
      dialog.addEventListener("close", function () {
        dialog.remove();
        resolve(dialog.returnValue);
      });
    });
  }

  // -- the HTTP API --------------------------------------------------------------------------

  function cookie(name) {
    var found = document.cookie.split("; ").find(function (one) { return one.startsWith(name + "="); });
    return found ? decodeURIComponent(found.slice(name.length + 1)) : "";
  }

  function errorText(answer, body) {
    if (body && body.detail) {
      return [body.detail].concat((body.mistakes || []).map(function (one) {
        return one.where + ": " + one.problem;
      })).join("\n");
    }
    if (answer.status === 401) { return "Your session has ended; reload the page."; }
    return "The server answered " + answer.status + " " + answer.statusText + ".";
  }

  async function callApi(method, path, body) {
    var options = { method: method, credentials: "same-origin", headers: { Accept: "application/json" } };
    if (method !== "GET") {
      options.headers["Content-Type"] = "application/json";
      options.headers["X-XSRFToken"] = cookie("_xsrf");
      options.headers["X-Requested-With"] = "XMLHttpRequest";
      options.body = JSON.stringify(body || {});
    }
    var answer;
    try {
      answer = await fetch(api + path, options);
    } catch (error) {
      throw new Error("Flower does not answer; check that it is running.");
    }
    var text = await answer.text();
    var result = null;
    try { result = text ? JSON.parse(text) : null; } catch (error) { result = null; }
    if (!answer.ok) { throw new Error(errorText(answer, result)); }
    return result;
  }

  function plural(number, noun) { return number + " " + noun + (number === 1 ? "" : "s"); }

  function outcomeText(result) {
    var list = (result && result.items) || [];
    var outcomes = {};
    list.forEach(function (one) { outcomes[one.outcome] = (outcomes[one.outcome] || 0) + 1; });
    var words = Object.keys(outcomes).map(function (name) { return outcomes[name] + " " + name; });
    var reasons = list.filter(function (one) { return one.reason; }).slice(0, 3)
      .map(function (one) { return (one.runId ? one.runId.slice(0, 8) : one.entry) + ": " + one.reason; });
    return words.concat(reasons).join("\n");
  }

  // -- buttons -------------------------------------------------------------------------------

  function selectedRuns() {
    return Array.from(page.querySelectorAll("input[name=run]:checked")).map(function (box) { return box.value; });
  }

  async function confirmResume(button, body) {
    var look = await callApi("POST", button.dataset.path, Object.assign({ dryRun: true }, body));
    var runs = look.preview ? look.preview.dispatched : 0;
    var skips = look.preview ? look.preview.skipped : 0;
    var text = button.dataset.confirm + "\n" + plural(runs, "missed slot") + " would be dispatched" +
      (skips ? ", " + skips + " skipped." : ".");
    var choices = [["catchup", "Resume"]];
    if (runs) { choices.unshift(["discard", "Resume without catch-up"]); }
    var chosen = await confirmInDialog(text, choices);
    return chosen && Object.assign({ catchup: chosen === "catchup" }, body);
  }

  async function requestBody(button) {
    var body = JSON.parse(button.dataset.body || "{}");
    if (button.dataset.bulk !== undefined) { body.runIds = selectedRuns(); }
    if (button.dataset.look === "resume") { return confirmResume(button, body); }
    if (button.dataset.confirm) {
      var text = button.dataset.confirm.replace("{n}", plural((body.runIds || []).length, "run"));
      if (!await confirmInDialog(text, [["yes", button.dataset.yes || button.textContent.trim()]])) { return ""; }
    }
    return body;
  }

  async function pressButton(button) {
    button.disabled = true;
    try {
      var body = await requestBody(button);
      if (body) {
        var result = await callApi(button.dataset.method || "POST", button.dataset.path, body);
        showMessage(button.dataset.done || outcomeText(result) || "Done.");
        if (button.dataset.bulk !== undefined) { clearSelection(); }
        await refresh();
      }
    } catch (error) {
      showMessage(error.message, "error");
    }
    button.disabled = false;
    updateSelection();
  }

  page.addEventListener("click", function (event) {
    var button = event.target.closest("button[data-path]");
    if (button) { pressButton(button); }
  });

  // -- check boxes ---------------------------------------------------------------------------

  function runBoxes() { return Array.from(page.querySelectorAll("input[name=run]")); }

  function clearSelection() {
    page.querySelectorAll("input[type=checkbox]").forEach(function (box) { box.checked = false; });
  }

  function updateSelection() {
    var count = selectedRuns().length;
    page.querySelectorAll("button[data-bulk]").forEach(function (button) { button.disabled = !count; });
    page.querySelectorAll("[data-ticked]").forEach(function (place) {
      place.textContent = count ? plural(count, "run") + " selected" : "Select runs to act on several at once.";
    });
    var all = page.querySelector("input[data-all]");
    if (all) {
      all.checked = count > 0 && count === runBoxes().length;
      all.indeterminate = count > 0 && count < runBoxes().length;
    }
  }

  page.addEventListener("change", function (event) {
    if (event.target.matches("input[data-all]")) {
      runBoxes().forEach(function (box) { box.checked = event.target.checked; });
    }
    updateSelection();
  });

  // -- staying up to date --------------------------------------------------------------------

  function keyOf(node) { return node.dataset && node.dataset.key; }

  function sameKind(old, fresh) {
    return old && old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);
  }

  // Change the shown elements into the fresh ones and leave equal elements alone, so that focus,
  // selection, check boxes and the scroll position stay.
  function morph(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) { old.nodeValue = fresh.nodeValue; }
      return;
    }
    if (old.isEqualNode(fresh)) { return; }
    Array.from(fresh.attributes).forEach(function (one) {
      if (old.getAttribute(one.name) !== one.value) { old.setAttribute(one.name, one.value); }
    });
    Array.from(old.attributes).forEach(function (one) {
      if (!fresh.hasAttribute(one.name) && one.name !== "open") { old.removeAttribute(one.name); }
    });
    var keyed = new Map();
    Array.from(old.children).forEach(function (child) { if (keyOf(child)) { keyed.set(keyOf(child), child); } });
    var place = old.firstChild;
    Array.from(fresh.childNodes).forEach(function (child) {
      var known = keyOf(child) ? keyed.get(keyOf(child)) : (sameKind(place, child) ? place : null);
      if (known && sameKind(known, child)) {
        if (known === place) { place = place.nextSibling; } else { old.insertBefore(known, place); }
        morph(known, child);
      } else {
        old.insertBefore(document.importNode(child, true), place);
      }
    });
    while (place) {
      var gone = place;
      place = place.nextSibling;
      gone.remove();
    }
  }

  var light = page.querySelector(".cu-live");

  function showLiveState(state, words) {
    if (light) {
      light.dataset.state = state;
      light.textContent = words;
    }
  }

  async function refresh() {
    var answer = await fetch(location.origin + location.pathname + location.search, { credentials: "same-origin", headers: { "X-Requested-With": "XMLHttpRequest" } });
    if (!answer.ok) { throw new Error(String(answer.status)); }
    var fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    page.querySelectorAll("[data-live]").forEach(function (old) {
      var found = fresh.getElementById(old.id);
      if (found) { morph(old, found); }
    });
    updateSelection();
    showLiveState("live", "Live");
  }

  var timer = null;

  function scheduleRefresh() {
    clearTimeout(timer);
    timer = setTimeout(async function () {
      try {
        await refresh();
      } catch (error) {
        showLiveState("failing", "Not up to date: Flower does not answer");
      }
      if (!document.hidden) { scheduleRefresh(); }
    }, every);
  }

  if (light) {
    document.addEventListener("visibilitychange", function () {
      if (document.hidden) {
        clearTimeout(timer);
        showLiveState("stopped", "Paused");
      } else {
        refresh().catch(function () { return null; }).then(scheduleRefresh);
      }
    });
    showLiveState("live", "Live");
    scheduleRefresh();
  }

  // -- times in the reader's time zone ------------------------------------------------------------

  function addLocalTime(event) {
    var place = event.target.closest && event.target.closest("time");
    if (place && !place.dataset.zoned) {
      place.dataset.zoned = "yes";
      var local = new Date(place.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
      place.title = place.dateTime + "\n" + local + " (your time)";
    }
  }

  page.addEventListener("pointerover", addLocalTime);
  page.addEventListener("focusin", addLocalTime);

  // -- the backfill form ----------------------------------------------------------------

  var form = page.querySelector("form[data-backfill]");

  function formValues() {
    var data = new FormData(form);
    return {
      entry: form.dataset.backfill || data.get("entry"),
      start: data.get("start"),
      end: data.get("end"),
      reprocess: data.get("reprocess"),
      maxActive: Number(data.get("maxActive")) || 1,
      newestFirst: data.get("order") === "newest"
    };
  }

  function shellQuote(word) { return /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replace(/'/g, "'\\''") + "'"; }

  function commandLine(what) {
    var words = ["celery", "-A", form.dataset.app, "catchup", "backfill", shellQuote(what.entry), "--start", what.start, "--end", what.end];
    if (what.reprocess !== "none") { words.push("--reprocess", what.reprocess); }
    if (what.maxActive !== 1) { words.push("--max-active", what.maxActive); }
    if (what.newestFirst) { words.push("--newest-first"); }
    return words.join(" ");
  }

  function showPreview(place, result) {
    place.replaceChildren();
    var rows = result.slots.slice(0, 8);
    rows.forEach(function (one) {
      place.append(one.scheduledTime.replace("T", " ").replace(/:00Z$/, "Z") + "  " + one.action + (one.reason ? " (" + one.reason + ")" : "") + "\n");
    });
    var more = result.dispatched + result.skipped - rows.length;
    if (more > 0) { place.append("… " + more + " more\n"); }
    place.append((rows.length ? "\n" : "") + plural(result.dispatched, "run") + " would be dispatched" +
      (result.skipped ? ", " + result.skipped + " skipped." : "."));
  }

  var asking = 0;

  async function updatePreview() {
    var number = ++asking;
    var what = formValues();
    var place = form.querySelector("[data-preview]");
    var button = form.querySelector("button[type=submit]");
    form.querySelector("[data-command]").textContent = what.entry ? commandLine(what) : "";
    if (!what.entry) { return; }
    try {
      var looks = await Promise.all(["none", "failed", "completed"].map(function (choice) {
        return callApi("POST", "/backfills/preview", Object.assign({}, what, { reprocess: choice }));
      }));
      if (number !== asking) { return; }
      looks.forEach(function (result, index) {
        form.querySelectorAll("[data-count]")[index].textContent = result.dispatched;
      });
      var mine = looks[["none", "failed", "completed"].indexOf(what.reprocess)];
      showPreview(place, mine);
      if (button) {
        button.disabled = !mine.dispatched;
        button.textContent = mine.dispatched ? "Dispatch " + plural(mine.dispatched, "run") : "Nothing to dispatch";
      }
    } catch (error) {
      if (number === asking) {
        place.textContent = error.message;
        if (button) { button.disabled = true; }
      }
    }
  }

  if (form) {
    var soon = null;
    form.addEventListener("input", function () {
      clearTimeout(soon);
      soon = setTimeout(updatePreview, 250);
    });
    form.addEventListener("submit", async function (event) {
      event.preventDefault();
      var what = formValues();
      var button = form.querySelector("button[type=submit]");
      if (!await confirmInDialog(button.textContent + " of “" + what.entry + "”, from " + what.start + " to " + what.end + "?", [["yes", button.textContent]])) { return; }
      try {
        var made = await callApi("POST", "/backfills", what);
        showMessage("Backfill " + made.id + " was created; beat starts it with its next tick.");
        await refresh();
        await updatePreview();
      } catch (error) {
        showMessage(error.message, "error");
      }
    });
    if (form.dataset.backfill) { updatePreview(); }
  }

  updateSelection();
}());
