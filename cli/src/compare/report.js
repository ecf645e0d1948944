/*
 * The report's script: choosing, searching and pointing. What the report says is in the markup without it.
 *
 * Decision: texts of sessions are only ever set as text, never as markup. Rows of misses are made when they are looked at,
 * a hundred at a time, and a search runs over the distinct texts once instead of over every row.
 */
"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  /* Light and dark: as the system has it, until the button says otherwise. */
  const theme = byId("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
  const showTheme = () => {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", isDark() ? "Change to light colours" : "Change to dark colours");
    theme.setAttribute("aria-pressed", String(isDark()));
  };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  systemDark.addEventListener("change", showTheme);
  showTheme();

  /* On paper nothing can be opened: the rules and the meaning of the columns come along. */
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("#verdict details, #table details")) details.open = true;
  });

  /* One session at a time. */
  const panels = [...document.querySelectorAll("details.session")];
  const picker = byId("session");
  if (picker && panels.length > 1) {
    const pick = () => panels.forEach((panel) => {
      panel.hidden = panel.dataset.session !== picker.value;
      panel.open = !panel.hidden;
    });
    picker.closest(".pick").hidden = false;
    picker.addEventListener("change", pick);
    pick();
  }

  /* The tooltip, beside the pointer and within the window. */
  const tip = byId("tip");
  const showTip = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
    const top = y + 14 + box.height > innerHeight ? y - 14 - box.height : y + 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  addEventListener("scroll", hideTip, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

  /* Values of a chart where the pointer is, read back from its lines. */
  const amount = (value, unit) => {
    if (unit === "percent") return `${Math.round(value * 100)} %`;
    return value < 1000 ? `${Math.round(value)} tokens` : `${(value / 1000).toFixed(1)}k tokens`;
  };
  const engineNames = [...document.querySelectorAll(".engines b")].map((name) => name.textContent);
  const pointsOf = (path) => {
    path.points ??= (path.getAttribute("d").match(/-?[\d.]+/g) ?? []).map(Number);
    return path.points;
  };
  const nearest = (points, x) => {
    let best = -1;
    for (let i = 0; i + 1 < points.length; i += 2) {
      if (best < 0 || Math.abs(points[i] - x) < Math.abs(points[best] - x)) best = i;
    }
    return best;
  };
  const ofTitle = (svg) => {
    /* The browser's own tooltip would cover ours; the name stays for those who hear the page. */
    const title = svg.querySelector(":scope > title");
    if (!title) return;
    svg.setAttribute("aria-label", title.textContent);
    svg.setAttribute("aria-describedby", svg.querySelector(":scope > desc").id);
    svg.removeAttribute("aria-labelledby");
    title.remove();
  };
  for (const svg of document.querySelectorAll(".chart")) {
    ofTitle(svg);
    if (svg.dataset.unit === "none") continue;
    const [left, top, right, bottom] = svg.dataset.box.split(" ").map(Number);
    const guide = document.createElementNS("http://www.w3.org/2000/svg", "path");
    guide.setAttribute("class", "guide");
    svg.append(guide);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      if (x < left - 4 || x > right + 4) return;
      const lines = [];
      for (const path of svg.querySelectorAll("g > .line")) {
        const points = pointsOf(path);
        const at = nearest(points, x);
        if (at < 0) continue;
        const value = ((bottom - points[at + 1]) / (bottom - top)) * Number(svg.dataset.max);
        lines.push(`${engineNames[path.parentNode.dataset.engine]}: about ${amount(value, svg.dataset.unit)}`);
      }
      guide.setAttribute("d", `M${x.toFixed(1)} ${top}V${bottom}`);
      showTip(lines.join("\n"), event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", () => {
      guide.removeAttribute("d");
      hideTip();
    });
  }

  /* Parts of a prompt, by pointer and by arrow keys. */
  for (const svg of document.querySelectorAll(".map")) {
    ofTitle(svg);
    const leaves = [...svg.querySelectorAll(".leaf")];
    const texts = leaves.map((leaf) => {
      const title = leaf.querySelector("title");
      title.remove();
      return title.textContent;
    });
    let current = -1;
    const select = (i, x, y) => {
      leaves[current]?.classList.remove("at");
      current = i;
      const leaf = leaves[i];
      if (!leaf) return hideTip();
      leaf.classList.add("at");
      const box = leaf.getBoundingClientRect();
      showTip(texts[i], x ?? box.left + box.width / 2, y ?? box.top + box.height / 2);
    };
    svg.addEventListener("pointermove", (event) => {
      select(leaves.indexOf(event.target.closest(".leaf")), event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", () => select(-1));
    svg.addEventListener("blur", () => select(-1));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      select((current + step + leaves.length) % leaves.length);
    });
  }

  /* The misses. A row: turn, call, thing, kind, entry, its turn, line; texts by number. */
  const data = byId("misses-data");
  if (!data) return;
  const { engines, budgets, sessions, texts, groups } = JSON.parse(data.textContent);
  const lower = texts.map((text) => text.toLowerCase());
  const PAGE = 100;
  const filters = byId("filters");
  const chosen = (id) => byId(id).value;
  filters.hidden = false;
  filters.addEventListener("submit", (event) => event.preventDefault());

  /* One box for each engine and budget; its rows go through the sessions. */
  const boxes = [];
  for (const group of groups) {
    let box = boxes.find((one) => one.engine === group.engine && one.budget === group.budget);
    if (!box) {
      box = { engine: group.engine, budget: group.budget, groups: [], matches: [], shown: 0, session: -1 };
      box.details = make("details", "group");
      box.summary = make("summary");
      box.list = make("ol");
      box.more = make("button", "", "");
      box.more.type = "button";
      box.details.append(box.summary, box.list, box.more);
      const one = box;
      box.details.addEventListener("toggle", () => { if (one.details.open && !one.shown) showMore(one); });
      box.more.addEventListener("click", () => showMore(one));
      byId("groups").append(box.details);
      boxes.push(box);
    }
    box.groups.push(group);
  }

  /* The thing in its line, and what was searched for, marked; made of text nodes. */
  const marked = (parent, text, words) => {
    const low = text.toLowerCase();
    /* Some letters change length in lower case; then nothing can be marked by position. */
    const found = low.length === text.length ? words.filter((word) => word) : [];
    let at = 0;
    while (at < text.length) {
      let next = -1;
      let length = 0;
      for (const word of found) {
        const i = low.indexOf(word, at);
        if (i >= 0 && (next < 0 || i < next || (i === next && word.length > length))) [next, length] = [i, word.length];
      }
      if (next < 0) break;
      parent.append(text.slice(at, next), make("mark", "", text.slice(next, next + length)));
      at = next + length;
    }
    parent.append(text.slice(at));
    return parent;
  };
  const rowOf = ([turn, call, thing, kind, entry, saidTurn, line], words) => {
    const item = make("li", "miss");
    const name = marked(make("bdi", "thing"), texts[thing], words);
    const then = saidTurn ? `in turn ${saidTurn}` : "before the first turn";
    const where = make("span", "where", `needed in turn ${turn}, call ${call}; last said ${then} (entry `);
    where.append(make("bdi", "", texts[entry]), "):");
    const said = marked(make("bdi", "said"), texts[line], [lower[thing], ...words]);
    item.append(name, make("span", "kind", texts[kind]), where, said);
    return item;
  };
  function showMore(box) {
    const rows = document.createDocumentFragment();
    for (const [session, row] of box.matches.slice(box.shown, box.shown + PAGE)) {
      if (session !== box.session) {
        const heading = make("li");
        heading.append(make("h4", "", `Session ${sessions[session]}`));
        rows.append(heading);
        box.session = session;
      }
      rows.append(rowOf(row, box.words));
    }
    box.list.append(rows);
    box.shown = Math.min(box.shown + PAGE, box.matches.length);
    const left = box.matches.length - box.shown;
    box.more.hidden = left === 0;
    box.more.textContent = `Show ${Math.min(PAGE, left)} more of ${left.toLocaleString("en")}`;
  }

  const search = () => {
    const words = chosen("search").toLowerCase().split(/\s+/).filter((word) => word);
    const hits = words.map((word) => lower.map((text) => text.includes(word)));
    const [engine, budget, session, kind] = ["by-engine", "by-budget", "by-session", "by-kind"].map(chosen);
    let found = 0;
    let all = 0;
    for (const box of boxes) {
      box.matches = [];
      box.words = words;
      let total = 0;
      for (const group of box.groups) {
        all += group.rows.length;
        total += group.total;
        if (engine && group.engine !== Number(engine)) continue;
        if (budget && group.budget !== Number(budget)) continue;
        if (session && group.session !== Number(session)) continue;
        for (const row of group.rows) {
          if (kind && texts[row[3]] !== kind) continue;
          if (hits.every((hit) => hit[row[2]] || hit[row[4]] || hit[row[6]])) box.matches.push([group.session, row]);
        }
      }
      found += box.matches.length;
      box.list.replaceChildren();
      box.shown = 0;
      box.session = -1;
      box.details.hidden = box.matches.length === 0;
      const counts = box.matches.length === total ? `${total.toLocaleString("en")} misses`
        : `${box.matches.length.toLocaleString("en")} of ${total.toLocaleString("en")} misses`;
      box.summary.replaceChildren(make("bdi", "", engines[box.engine]), ` at ${budgets[box.budget]}: ${counts}`);
      if (box.details.open) showMore(box);
    }
    /* Who searches wants to see what was found. */
    const visible = boxes.filter((box) => box.matches.length);
    if (words.length && visible.length && !visible.some((box) => box.details.open)) {
      visible[0].details.open = true;
      showMore(visible[0]);
    }
    byId("found").textContent = found === all ? `${all.toLocaleString("en")} misses`
      : `${found.toLocaleString("en")} of ${all.toLocaleString("en")} misses match`;
  };
  filters.addEventListener("input", search);
  search();
})();
