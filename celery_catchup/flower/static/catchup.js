// The Catch-up tab: update open pages, call the HTTP API from buttons, remember the reader's time zone.
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

  // Ask in a dialog; resolve to the pressed button and the reason that was given, or null.
  function confirmInDialog(text, choices, wantsReason) {
    var asked = document.activeElement;
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
    var reason = document.createElement("input");
    if (wantsReason) {
      var label = document.createElement("label");
      reason.className = "cu-input";
      reason.maxLength = 500;
      label.append("Reason, for the record", reason);
      form.prepend(label);
    }
    dialog.append(words, form);
    page.append(dialog);
    dialog.showModal();
    return new Promise(function (resolve) {
      dialog.addEventListener("close", function () {
        dialog.remove();
        if (asked) { asked.focus(); }
        resolve(dialog.returnValue ? { choice: dialog.returnValue, reason: reason.value } : null);
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

  // Call an endpoint; an error has the problem details as `problem`.
  async function callApi(method, path, body, headers) {
    var options = { method: method, credentials: "same-origin", headers: { Accept: "application/json" } };
    if (method !== "GET") {
      options.headers["Content-Type"] = "application/json";
      options.headers["X-XSRFToken"] = cookie("_xsrf");
      options.headers["X-Requested-With"] = "XMLHttpRequest";
      options.body = JSON.stringify(body || {});
      Object.assign(options.headers, headers || {});
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
    if (!answer.ok) {
      var failure = new Error(errorText(answer, result));
      failure.problem = result;
      throw failure;
    }
    return result;
  }

  function plural(number, noun) {
    return number + " " + (number === 1 ? noun : noun.endsWith("y") ? noun.slice(0, -1) + "ies" : noun + "s");
  }

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

  async function confirmResume(button, body) {
    var look = await callApi("POST", button.dataset.path, Object.assign({ dryRun: true }, body));
    var preview = look.preview || { dispatched: 0, skipped: 0, slots: [] };
    var runs = preview.dispatched;
    var text = button.dataset.confirm + "\n" + plural(runs, "missed slot") + " would be dispatched" +
      (preview.skipped ? ", " + preview.skipped + " skipped" : "") +
      (preview.slots.length ? ", from " + preview.slots[0].scheduledTime + " to " + preview.at + "." : ".");
    var choices = [["catchup", "Resume"]];
    if (runs) { choices.unshift(["discard", "Resume without catch-up"]); }
    var answer = await confirmInDialog(text, choices);
    return answer && Object.assign({ catchup: answer.choice === "catchup" }, body);
  }

  async function confirmRun(button, body) {
    var look = await callApi("POST", button.dataset.path, Object.assign({ dryRun: true }, body));
    var missed = plural(look.passedOver, "missed slot");
    var text = button.dataset.confirm + (look.passedOver ? "\n" + missed + " would count as done by it, unless they are kept for the catch-up." : "");
    var choices = look.passedOver ? [["drop", "Run, skip " + missed], ["keep", "Run, keep " + missed]] : [["drop", "Run now"]];
    var answer = await confirmInDialog(text, choices);
    return answer && Object.assign({ keepMissed: answer.choice === "keep" }, body);
  }

  async function requestBody(button) {
    var body = JSON.parse(button.dataset.body || "{}");
    if (button.dataset.bulk) { body[button.dataset.bulk] = selected(); }
    if (button.dataset.look === "resume") { return confirmResume(button, body); }
    if (button.dataset.look === "run") { return confirmRun(button, body); }
    if (button.dataset.confirm) {
      var text = button.dataset.confirm.replace("{n}", plural(selected().length, button.dataset.bulk === "entries" ? "entry" : "run"));
      var answer = await confirmInDialog(text, [["yes", button.dataset.yes || button.textContent.trim()]], button.dataset.reason);
      if (!answer) { return null; }
      if (answer.reason) { body.reason = answer.reason; }
    }
    return body;
  }

  var busy = false;

  async function pressButton(button) {
    if (busy) { return; }
    busy = true;
    try {
      var body = await requestBody(button);
      if (body) {
        var revision = button.dataset.match ? { "If-Match": button.dataset.match } : {};
        var result = await callApi("POST", button.dataset.path, body, revision);
        showMessage(button.dataset.done || outcomeText(result) || "Done.");
        if (button.dataset.then) { location.assign(button.dataset.then); }
        clearSelection();
        await refresh();
      }
    } catch (error) {
      showMessage(error.message, "error");
    }
    busy = false;
    updateSelection();
  }

  page.addEventListener("click", function (event) {
    var button = event.target.closest("button");
    if (button && button.getAttribute("aria-disabled") === "true") {
      showMessage(button.title);
    } else if (button && button.dataset.path) {
      pressButton(button);
    }
  });

  // -- check boxes ---------------------------------------------------------------------------

  function boxes() { return Array.from(page.querySelectorAll("input[name=run][type=checkbox], input[name=entry][type=checkbox]")); }

  function selected() {
    return boxes().filter(function (box) { return box.checked; }).map(function (box) { return box.value; });
  }

  function clearSelection() {
    page.querySelectorAll("input[type=checkbox]").forEach(function (box) { box.checked = false; });
  }

  function updateSelection() {
    var count = selected().length;
    page.querySelectorAll("button[data-bulk]").forEach(function (button) {
      button.setAttribute("aria-disabled", String(!count));
    });
    page.querySelectorAll("[data-ticked]").forEach(function (place) {
      var noun = place.dataset.ticked || "run";
      place.textContent = count ? plural(count, noun) + " selected" : "Select several to act on them at once.";
    });
    var all = page.querySelector("input[data-all]");
    if (all) {
      all.checked = count > 0 && count === boxes().length;
      all.indeterminate = count > 0 && count < boxes().length;
    }
  }

  page.addEventListener("change", function (event) {
    if (event.target.matches("input[data-all]")) {
      boxes().forEach(function (box) { box.checked = event.target.checked; });
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

  async function fetchPage(address) {
    var answer = await fetch(address, { credentials: "same-origin", headers: { "X-Requested-With": "XMLHttpRequest" } });
    if (!answer.ok) { throw new Error(String(answer.status)); }
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  }

  async function refresh() {
    var fresh = await fetchPage(location.origin + location.pathname + location.search);
    page.querySelectorAll("[data-live]").forEach(function (old) {
      var found = fresh.getElementById(old.id);
      if (found) { morph(old, found); }
    });
    updateSelection();
    showLiveState("live", "Live");
  }

  var timer = null;
  var stream = null;

  function scheduleRefresh(delay) {
    clearTimeout(timer);
    timer = setTimeout(async function () {
      try {
        await refresh();
      } catch (error) {
        showLiveState("failing", "Not up to date: Flower does not answer");
      }
      if (!document.hidden) { scheduleRefresh(); }
    }, delay || (stream && stream.readyState === EventSource.OPEN ? 10 * every : every));
  }

  // The server tells of changes; without it, and where the API is closed, the page asks by itself.
  function openStream() {
    stream = new EventSource(api + "/events");
    stream.addEventListener("changed", function () { scheduleRefresh(300); });
    stream.addEventListener("error", function () { scheduleRefresh(); });
  }

  if (light) {
    document.addEventListener("visibilitychange", function () {
      if (document.hidden) {
        clearTimeout(timer);
        stream.close();
        showLiveState("stopped", "Paused");
      } else {
        openStream();
        refresh().catch(function () { return null; }).then(function () { scheduleRefresh(); });
      }
    });
    showLiveState("live", "Live");
    openStream();
    scheduleRefresh();
  }

  // -- the backfill form: its preview is a part of a page of its own ------------------------------

  var form = page.querySelector("form[data-preview]");
  var asking = 0;

  async function updatePreview() {
    var number = ++asking;
    var query = new URLSearchParams(new FormData(form));
    if (!query.get("entry")) { return; }
    var fresh = await fetchPage(form.action + "?" + query);
    if (number !== asking) { return; }
    var place = document.getElementById("cu-backfill-preview");
    morph(place, fresh.getElementById(place.id) || fresh.querySelector(".cu-note"));
    form.querySelectorAll("[data-count]").forEach(function (one) {
      var count = place.querySelector("[data-count-of=" + one.dataset.count + "]");
      one.textContent = count ? count.textContent : "";
    });
  }

  if (form) {
    var soon = null;
    form.addEventListener("input", function () {
      clearTimeout(soon);
      soon = setTimeout(updatePreview, 250);
    });
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      updatePreview();
    });
    updatePreview();
  }

  // -- forms whose answer is a part of a page of its own -----------------------------------------

  page.addEventListener("submit", async function (event) {
    var place = document.getElementById(event.target.dataset.result || "");
    if (!place) { return; }
    event.preventDefault();
    place.setAttribute("aria-busy", "true");
    try {
      var fresh = await fetchPage(event.target.action + "?" + new URLSearchParams(new FormData(event.target)));
      place.replaceChildren(...fresh.getElementById(place.id).childNodes);
    } catch (error) {
      place.textContent = "That failed (" + error.message + "); try again in a few seconds.";
    }
    place.removeAttribute("aria-busy");
  });

  // -- the zone of times, and other choices that reload the page --------------------------------

  function chooseZone(choice) {
    var value = choice === "local" ? "local:" + Intl.DateTimeFormat().resolvedOptions().timeZone : choice;
    document.cookie = "catchup_zone=" + encodeURIComponent(value) + "; path=/; max-age=31536000; SameSite=Lax";
    location.reload();
  }

  page.addEventListener("click", function (event) {
    var button = event.target.closest("button[data-zone]");
    if (button) { chooseZone(button.dataset.zone); }
  });

  page.addEventListener("change", function (event) {
    if (event.target.matches("[data-submit]") && event.target.value) { event.target.form.submit(); }
  });

  // -- keys: / searches, j and k go through the rows ----------------------------------------------

  function moveThroughRows(step) {
    var rows = Array.from(page.querySelectorAll("#cu-rows tbody tr")).filter(function (row) { return row.querySelector("a"); });
    var at = rows.findIndex(function (row) { return row.contains(document.activeElement); });
    var row = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
    if (row) { row.querySelector("a").focus(); }
  }

  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) { return; }
    var search = page.querySelector("[data-search]");
    if (event.key === "/" && search) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "j" || event.key === "k") {
      moveThroughRows(event.key === "j" ? 1 : -1);
    }
  });

  updateSelection();
  window.celeryCatchup = { callApi: callApi, showMessage: showMessage };
}());
