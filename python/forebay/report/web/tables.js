"use strict";
// Tables that sort by a column: a click on its heading, or Enter on its button. Texts such as
// "0.54 ± 0.12" sort by their first number; texts without a number come last, in both directions.
(() => {
  const NOT = "table.words, table.sides";

  const number = (text) => {
    const found = text.replace(/\u2212/g, "-").match(/^\s*[<>≈]?\s*(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)/i);
    return found ? Number(found[1]) : null;
  };

  const compare = (a, b, down) => {
    const [x, y] = [number(a), number(b)];
    const sign = down ? -1 : 1;
    if (x !== null && y !== null) return sign * (x - y);
    if (x !== null || y !== null) return x === null ? 1 : -1;
    const empty = (text) => /^[–-]?$/.test(text);
    if (empty(a) || empty(b)) return empty(a) - empty(b);
    return sign * a.localeCompare(b, "en", { numeric: true });
  };

  const sort = (table, heading) => {
    const column = heading.cellIndex;
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const text = (row) => (row.cells[column]?.innerText ?? "").trim();
    const rows = [...table.rows].slice(1).map((row) => [text(row), row]);
    rows.sort(([a], [b]) => compare(a, b, down));
    const body = table.tBodies[0];
    for (const [, row] of rows) body.append(row);
  };

  const prepare = (table) => {
    if (table.matches(NOT) || table.rows.length < 3) return;
    for (const heading of table.rows[0].cells) {
      if (heading.tagName !== "TH") continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sort(table, heading));
    }
  };

  // A choice of columns: at first those that fit, so that nothing scrolls sideways.
  const choose = (table) => {
    const frame = table.parentElement;
    const heads = [...table.rows[0].cells];
    const show = (column, shown) => {
      for (const row of table.rows) row.cells[column].hidden = !shown;
    };
    const box = (head, column) => {
      const label = document.createElement("label");
      const input = document.createElement("input");
      input.type = "checkbox";
      input.addEventListener("change", () => show(column, input.checked));
      label.append(input, ` ${head.innerText.split("\n")[0]}`);
      return label;
    };
    const boxes = heads.map(box);
    const fit = () => {
      let last = heads.length - 1;
      heads.forEach((_, column) => show(column, true));
      while (last > 1 && frame.scrollWidth > frame.clientWidth) show(last--, false);
      boxes.forEach((label, column) => { label.firstChild.checked = column <= last; });
    };
    const choice = document.createElement("details");
    choice.className = "columns";
    const summary = document.createElement("summary");
    summary.textContent = "Columns";
    choice.append(summary, ...boxes.slice(1));
    frame.after(choice);
    fit();
    // Paper has room for all columns, and no choice.
    addEventListener("beforeprint", () => heads.forEach((_, column) => show(column, true)));
    addEventListener("afterprint", () => boxes.forEach((label, column) => show(column, label.firstChild.checked)));
  };

  document.querySelectorAll("main table").forEach(prepare);
  document.querySelectorAll("main table.choose").forEach(choose);
})();
