// The page is complete without this. It sorts and filters tables, and changes the colours.
"use strict";

const MISSING = new Set(["", "–", "—", "-"]);
const NUMBER = /^[+−-]?[\d,]*\.?\d+(?:e[+−-]?\d+)?(?![\w.,:/-])/i; // "12.3 %", "+1.20 (−0.30 to +2.70)"
const ALPHABET = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** The number that a text begins with, or null. */
function toNumber(text) {
  const found = NUMBER.exec(text);
  return found && Number(found[0].replaceAll(",", "").replaceAll("−", "-"));
}

/** Sorts a table by a column: missing cells last, equal ones in their order. */
function sortRows(table, column, direction) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => ({ row, text: row.cells[column].textContent.trim() }));
  const missing = rows.filter(({ text }) => MISSING.has(text));
  const told = rows.filter(({ text }) => !MISSING.has(text));
  const numbers = new Map(told.map(({ row, text }) => [row, toNumber(text)]));
  const order = told.some(({ row }) => numbers.get(row) === null)
    ? (one, other) => ALPHABET.compare(one.text, other.text)
    : (one, other) => numbers.get(one.row) - numbers.get(other.row);
  told.sort((one, other) => direction * order(one, other));
  body.append(...[...told, ...missing].map(({ row }) => row));
}

/** Makes the heads of a table buttons that sort by their column, unless it holds pictures. */
function makeSortable(table) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    if (Array.from(table.tBodies[0].rows).some((row) => row.cells[column].querySelector("img"))) {
      return;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      sortRows(table, column, up ? 1 : -1);
    });
  });
}

/** Lets a box hide the rows that do not contain its text, and say how many are left. */
function makeFilter(box, table) {
  const [input, output] = [box.querySelector("input"), box.querySelector("output")];
  const rows = Array.from(table.tBodies[0].rows, (row) => {
    const pictures = Array.from(row.querySelectorAll("img"), (picture) => picture.alt);
    return { row, text: [row.textContent, ...pictures].join(" ").toLowerCase() };
  });
  const filter = () => {
    const wanted = input.value.trim().toLowerCase();
    rows.forEach(({ row, text }) => (row.hidden = !text.includes(wanted)));
    const shown = rows.filter(({ row }) => !row.hidden).length;
    output.textContent = `${shown} of ${rows.length} rows`;
  };
  input.addEventListener("input", filter);
  filter(); // the browser may have kept what was typed
}

document.querySelectorAll(".table").forEach((part) => {
  const table = part.querySelector("table");
  makeSortable(table);
  const box = part.querySelector(".filter");
  if (box) {
    makeFilter(box, table);
  }
});

document.querySelector(".theme").addEventListener("click", () => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
});

document.querySelectorAll(".control").forEach((control) => (control.hidden = false));
