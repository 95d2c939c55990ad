// The Catch-up tab: pages stay up to date, buttons call the HTTP API, times tell the reader's zone.
// The server draws; this file only moves what it has drawn, so nothing here makes markup of text.
(function () {
  "use strict";

  var page = document.querySelector(".cu");
  if (!page) { return; }
  var every = Number(page.dataset.every) * 1000;
  // From the origin: an address with a password in it, as some bookmarks have, cannot be fetched.
  var api = location.origin + page.dataset.api;

  // -- saying things -------------------------------------------------------------------------

  var says = page.querySelector(".cu-says");

  function say(text, kind) {
    var note = document.createElement("div");
    note.className = "cu-note" + (kind ? " cu-" + kind : "");
    note.setAttribute("role", kind === "error" ? "alert" : "status");
    note.textContent = text;
    says.append(note);
    setTimeout(function () { note.remove(); }, kind === "error" ? 15000 : 6000);
  }

  // Asks in a dialog; gives the value of the button that was pressed, or "" for none.
  function ask(text, choices) {
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

  function sentence(answer, body) {
    if (body && body.error) {
      return [body.error.message].concat((body.error.mistakes || []).map(function (one) {
        return one.where + ": " + one.problem;
      })).join("\n");
    }
    if (answer.status === 401) { return "You are not signed in any more; load the page again."; }
    return "The server answered " + answer.status + " " + answer.statusText + ".";
  }

  async function call(method, path, body) {
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
      throw new Error("Flower does not answer; is it still running?");
    }
    var text = await answer.text();
    var told = null;
    try { told = text ? JSON.parse(text) : null; } catch (error) { told = null; }
    if (!answer.ok) { throw new Error(sentence(answer, told)); }
    return told;
  }

  function counted(number, noun) { return number + " " + noun + (number === 1 ? "" : "s"); }

  function handled(told) {
    var list = (told && told.runs) || [];
    var outcomes = {};
    list.forEach(function (one) { outcomes[one.outcome] = (outcomes[one.outcome] || 0) + 1; });
    var words = Object.keys(outcomes).map(function (name) { return outcomes[name] + " " + name; });
    var reasons = list.filter(function (one) { return one.reason; }).slice(0, 3)
      .map(function (one) { return one.runId.slice(0, 8) + ": " + one.reason; });
    return words.concat(reasons).join("\n");
  }

  // -- buttons -------------------------------------------------------------------------------

  function ticked() {
    return Array.from(page.querySelectorAll("input[name=run]:checked")).map(function (box) { return box.value; });
  }

  async function resumed(button, body) {
    var look = await call("POST", button.dataset.path, Object.assign({ dryRun: true }, body));
    var previews = (look && look.previews) || [];
    var runs = previews.reduce(function (sum, one) { return sum + one.dispatched; }, 0);
    var skips = previews.reduce(function (sum, one) { return sum + one.skipped; }, 0);
    var text = button.dataset.confirm + "\n" + counted(runs, "missed slot") + " would be dispatched" +
      (skips ? ", " + skips + " skipped." : ".");
    var choices = [["catchup", "Resume"]];
    if (runs) { choices.unshift(["discard", "Resume without catch-up"]); }
    var chosen = await ask(text, choices);
    return chosen && Object.assign({ catchup: chosen === "catchup" }, body);
  }

  async function prepared(button) {
    var body = JSON.parse(button.dataset.body || "{}");
    if (button.dataset.bulk !== undefined) { body.runIds = ticked(); }
    if (button.dataset.look === "resume") { return resumed(button, body); }
    if (button.dataset.confirm) {
      var text = button.dataset.confirm.replace("{n}", counted((body.runIds || []).length, "run"));
      if (!await ask(text, [["yes", button.dataset.yes || button.textContent.trim()]])) { return ""; }
    }
    return body;
  }

  async function pressed(button) {
    button.disabled = true;
    try {
      var body = await prepared(button);
      if (body) {
        var told = await call(button.dataset.method || "POST", button.dataset.path, body);
        say(button.dataset.done || handled(told) || "Done.");
        if (button.dataset.bulk !== undefined) { untick(); }
        await look();
      }
    } catch (error) {
      say(error.message, "error");
    }
    button.disabled = false;
    bulk();
  }

  page.addEventListener("click", function (event) {
    var button = event.target.closest("button[data-path]");
    if (button) { pressed(button); }
  });

  // -- check boxes ---------------------------------------------------------------------------

  function boxes() { return Array.from(page.querySelectorAll("input[name=run]")); }

  function untick() {
    page.querySelectorAll("input[type=checkbox]").forEach(function (box) { box.checked = false; });
  }

  function bulk() {
    var count = ticked().length;
    page.querySelectorAll("button[data-bulk]").forEach(function (button) { button.disabled = !count; });
    page.querySelectorAll("[data-ticked]").forEach(function (place) {
      place.textContent = count ? counted(count, "run") + " selected" : "Select runs to handle them together.";
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
    bulk();
  });

  // -- staying up to date --------------------------------------------------------------------

  function key(node) { return node.dataset && node.dataset.key; }

  function alike(old, fresh) {
    return old && old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && key(old) === key(fresh);
  }

  // Makes what is shown look as what was drawn now, without touching what is the same: focus,
  // selection, check boxes and the place where somebody reads are kept.
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
    Array.from(old.children).forEach(function (child) { if (key(child)) { keyed.set(key(child), child); } });
    var place = old.firstChild;
    Array.from(fresh.childNodes).forEach(function (child) {
      var known = key(child) ? keyed.get(key(child)) : (alike(place, child) ? place : null);
      if (known && alike(known, child)) {
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

  function shine(state, words) {
    if (light) {
      light.dataset.state = state;
      light.textContent = words;
    }
  }

  async function look() {
    var answer = await fetch(location.origin + location.pathname + location.search, { credentials: "same-origin", headers: { "X-Requested-With": "XMLHttpRequest" } });
    if (!answer.ok) { throw new Error(String(answer.status)); }
    var fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    page.querySelectorAll("[data-live]").forEach(function (old) {
      var found = fresh.getElementById(old.id);
      if (found) { morph(old, found); }
    });
    bulk();
    shine("live", "Live");
  }

  var timer = null;

  function later() {
    clearTimeout(timer);
    timer = setTimeout(async function () {
      try {
        await look();
      } catch (error) {
        shine("failing", "Not up to date: Flower does not answer");
      }
      if (!document.hidden) { later(); }
    }, every);
  }

  if (light) {
    document.addEventListener("visibilitychange", function () {
      if (document.hidden) {
        clearTimeout(timer);
        shine("stopped", "Paused");
      } else {
        look().catch(function () { return null; }).then(later);
      }
    });
    shine("live", "Live");
    later();
  }

  // -- times in the reader's zone ------------------------------------------------------------

  function zoned(event) {
    var place = event.target.closest && event.target.closest("time");
    if (place && !place.dataset.zoned) {
      place.dataset.zoned = "yes";
      var local = new Date(place.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
      place.title = place.dateTime + "\n" + local + " (your time)";
    }
  }

  page.addEventListener("pointerover", zoned);
  page.addEventListener("focusin", zoned);

  // -- the form of a backfill ----------------------------------------------------------------

  var form = page.querySelector("form[data-backfill]");

  function asked() {
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

  function quoted(word) { return /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replace(/'/g, "'\\''") + "'"; }

  function command(what) {
    var words = ["celery", "-A", form.dataset.app, "catchup", "backfill", quoted(what.entry), "--start", what.start, "--end", what.end];
    if (what.reprocess !== "none") { words.push("--reprocess", what.reprocess); }
    if (what.maxActive !== 1) { words.push("--max-active", what.maxActive); }
    if (what.newestFirst) { words.push("--newest-first"); }
    return words.join(" ");
  }

  function table(place, told) {
    place.replaceChildren();
    var rows = told.slots.slice(0, 8);
    rows.forEach(function (one) {
      place.append(one.scheduledTime.replace("T", " ").replace(/:00Z$/, "Z") + "  " + one.action + (one.reason ? " (" + one.reason + ")" : "") + "\n");
    });
    var more = told.dispatched + told.skipped - rows.length;
    if (more > 0) { place.append("… " + more + " more\n"); }
    place.append((rows.length ? "\n" : "") + counted(told.dispatched, "run") + " would be dispatched" +
      (told.skipped ? ", " + told.skipped + " skipped." : "."));
  }

  var asking = 0;

  async function previewed() {
    var number = ++asking;
    var what = asked();
    var place = form.querySelector("[data-preview]");
    var button = form.querySelector("button[type=submit]");
    form.querySelector("[data-command]").textContent = what.entry ? command(what) : "";
    if (!what.entry) { return; }
    try {
      var looks = await Promise.all(["none", "failed", "completed"].map(function (choice) {
        return call("POST", "/backfill/preview", Object.assign({}, what, { reprocess: choice }));
      }));
      if (number !== asking) { return; }
      looks.forEach(function (told, index) {
        form.querySelectorAll("[data-count]")[index].textContent = told.dispatched;
      });
      var mine = looks[["none", "failed", "completed"].indexOf(what.reprocess)];
      table(place, mine);
      if (button) {
        button.disabled = !mine.dispatched;
        button.textContent = mine.dispatched ? "Dispatch " + counted(mine.dispatched, "run") : "Nothing to dispatch";
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
      soon = setTimeout(previewed, 250);
    });
    form.addEventListener("submit", async function (event) {
      event.preventDefault();
      var what = asked();
      var button = form.querySelector("button[type=submit]");
      if (!await ask(button.textContent + " of “" + what.entry + "”, from " + what.start + " to " + what.end + "?", [["yes", button.textContent]])) { return; }
      try {
        var made = await call("POST", "/backfills", what);
        say("Backfill " + made.id + " was created; the scheduler begins with its next tick.");
        await look();
        await previewed();
      } catch (error) {
        say(error.message, "error");
      }
    });
    if (form.dataset.backfill) { previewed(); }
  }

  bulk();
}());
