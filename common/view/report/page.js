"use strict";
(() => {
  const FEW = 10, MOST_LIT = 150, POWERS = {P: 15, T: 12, G: 9, M: 6, k: 3, m: -3, "\u00b5": -6, n: -9, p: -12, f: -15, a: -18};
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const element = (name, text = "", attributes = {}) =>
    Object.assign(document.createElement(name), {textContent: text}, attributes);

  // One tab stop for many elements: the arrow keys, Home and End move among those that are shown (WAI-ARIA Authoring
  // Practices Guide, roving tabindex). Return what gives the tab stop to the first one when its own is hidden.
  const rove = (root, selector, back, forth) => {
    const shown = () => all(selector, root).filter(item => !item.hidden);
    let stop = null;
    const give = item => {
      if (stop) stop.tabIndex = -1;
      stop = item ?? null;
      if (stop) stop.tabIndex = 0;
    };
    all(selector, root).forEach(item => { item.tabIndex = -1; });
    give(shown()[0]);
    root.addEventListener("focusin", event => { if (event.target.matches(selector)) give(event.target); });
    root.addEventListener("keydown", event => {
      const items = shown(), place = items.indexOf(event.target);
      const step = back.includes(event.key) ? -1 : forth.includes(event.key) ? 1 : 0;
      const next = {Home: items[0], End: items.at(-1)}[event.key] ?? (step ? items[place + step] : undefined);
      if (place < 0 || !next) return;
      event.preventDefault();
      next.focus();
    });
    return () => { if (!stop || stop.hidden) give(shown()[0]); };
  };

  // The value of a cell such as "1.5 ms" or "2,048": numbers sort by what they mean, in any unit of their column.
  const valueOf = text => {
    const found = /^[+]?(-?[\d,]*\.?\d+(?:e[-+]?\d+)?)(?: ([PTGMkm\u00b5npfa])?\S*)?/.exec(text);
    return found ? Number(found[1].replaceAll(",", "")) * 10 ** (POWERS[found[2]] ?? 0) : null;
  };
  const order = (a, b) => {
    const [x, y] = [valueOf(a), valueOf(b)];
    if (x !== null && y !== null) return x - y;
    return (x === null) - (y === null) || a.localeCompare(b, "en", {numeric: true});
  };

  for (const table of all("table")) {
    const [body] = table.tBodies, rows = [...body.rows];
    const settle = rove(body, "tr[data-n]", ["ArrowUp"], ["ArrowDown"]);
    if (rows.length < 2) continue;
    table.parentElement.removeAttribute("tabindex");  // its buttons are tab stops
    all("th", table).forEach((head, column) => {
      const text = head.textContent, numeric = table.classList.contains(`right-${column + 1}`);
      const button = element("button", text || "#", {type: "button", title: "sort"});
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.ariaSort ? head.ariaSort === "ascending" : numeric;
        all("th", table).forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sorted = rows.map(row => [row.cells[column].textContent, row]);
        const known = sorted.filter(([text]) => text && text !== "\u2013");
        const unknown = sorted.filter(([text]) => !text || text === "\u2013");
        known.sort((a, b) => (down ? -1 : 1) * order(a[0], b[0]));
        body.append(...[...known, ...unknown].map(([, row]) => row));
      });
    });
    rove(table.tHead, "button", ["ArrowLeft"], ["ArrowRight"]);
    if (rows.length <= FEW) continue;
    const texts = rows.map(row => row.textContent.toLowerCase());
    const count = element("span", ` ${rows.length} rows`, {role: "status"});
    const field = element("input", "", {type: "search", placeholder: "filter rows", ariaLabel: "filter rows"});
    const tool = element("p", "", {className: "tool"});
    tool.append(field, count);
    table.parentElement.before(tool);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, index) => {
        row.hidden = !words.every(word => texts[index].includes(word));
        shown += !row.hidden;
      });
      count.textContent = ` ${shown} of ${rows.length} rows`;
      settle();
    });
  }

  // A node has one number. Whatever shows it has that number in data-n, and lights up with all others that do.
  const places = new Map();
  for (const place of all("[data-n]")) {
    for (const number of place.dataset.n.split(" ")) {
      if (!places.has(number)) places.set(number, []);
      places.get(number).push(place);
    }
  }
  if (!places.size) return;
  const panel = document.querySelector("main").appendChild(element("div", "", {id: "shown", role: "status"}));
  let pinned = null;
  const light = chosen => {
    all(".lit").forEach(place => place.classList.remove("lit"));
    all("svg.dim").forEach(svg => svg.classList.remove("dim"));
    panel.replaceChildren();
    if (!chosen) return;
    const numbers = chosen.dataset.n.split(" ");
    for (const place of lightable(chosen, numbers)) {
      place.classList.add("lit");
      place.closest("figure svg")?.classList.add("dim");
    }
    describe(chosen, numbers);
  };
  // A block of a large model has thousands of nodes: then only places on the screen light up, and again after scrolling.
  const lightable = (chosen, numbers) => {
    const related = [...new Set([chosen, ...numbers.flatMap(number => places.get(number))])];
    if (related.length <= MOST_LIT) return related;
    return [chosen, ...related.slice(1).filter(isOnScreen).slice(0, MOST_LIT - 1)];
  };
  const isOnScreen = place => {
    const box = place.getBoundingClientRect();
    const frame = place.closest(".scroll")?.getBoundingClientRect() ?? {top: 0, bottom: Infinity};
    const [top, bottom] = [Math.max(0, frame.top), Math.min(window.innerHeight, frame.bottom)];
    return box.height > 0 && box.bottom > top && box.top < bottom;
  };
  let isWaiting = false;
  document.addEventListener("scroll", () => {
    if (isWaiting || !pinned) return;
    isWaiting = true;
    requestAnimationFrame(() => { isWaiting = false; light(pinned); });
  }, {capture: true, passive: true});
  const describe = (chosen, numbers) => {
    const row = numbers.length === 1 && document.querySelector(`#nodes tr[data-n="${numbers[0]}"]`);
    const title = chosen.querySelector(":scope > title")?.textContent;
    if (pinned) panel.append(element("button", "release", {type: "button", onclick: () => pin(null)}));
    if (!row) {
      panel.append(title ?? `${chosen.cells?.[0].textContent ?? ""}: ${numbers.length} nodes`);
      return;
    }
    if (pinned) panel.append(element("button", "row in the table", {type: "button", onclick: () => {
      row.hidden = false;
      row.scrollIntoView({block: "center"});
      row.focus({preventScroll: true});
    }}));
    const heads = all("#nodes th").map(head => head.textContent);
    [...row.cells].forEach((cell, index) => panel.append(index
      ? element("span", `${heads[index]} ${cell.textContent}`) : element("b", cell.textContent)));
  };
  const pin = chosen => {
    pinned?.matches(".block") && pinned.setAttribute("aria-pressed", "false");
    pinned = chosen;
    pinned?.matches(".block") && pinned.setAttribute("aria-pressed", "true");
    light(chosen);
  };
  const marked = event => event.target.closest?.("[data-n]") ?? null;
  document.addEventListener("pointerover", event => {
    if (!pinned && event.pointerType === "mouse") light(marked(event));
  });
  document.addEventListener("click", event => {
    if (!panel.contains(event.target) && !event.target.closest("a, button, input, label")) pin(marked(event));
  });
  document.addEventListener("keydown", event => {
    if (event.key === "Escape") pin(null);
    if ((event.key === "Enter" || event.key === " ") && event.target.matches("[data-n]")) {
      event.preventDefault();
      pin(event.target);
    }
  });
  for (const graph of all(".blocks svg")) {
    graph.setAttribute("role", "group");
    for (const block of all(".block", graph)) {
      block.setAttribute("role", "button");
      block.setAttribute("aria-pressed", "false");
      all("text", block).forEach(text => text.setAttribute("aria-hidden", "true"));  // the title says it all
    }
    // Chromium makes an SVG that listens to focus a tab stop of its own, so its parent listens.
    rove(graph.parentElement, ".block", ["ArrowUp", "ArrowLeft"], ["ArrowDown", "ArrowRight"]);
  }
  const keys = "Arrow keys move among rows, blocks and headers; Enter keeps a node lit, Escape releases it.";
  document.querySelector("nav").after(element("p", keys, {className: "tool aside"}));
  document.addEventListener("focusin", event => {
    if (!pinned && event.target.matches("[data-n]")) light(event.target);
  });
})();
