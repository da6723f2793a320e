// Judging by keyboard: one query at a time, answers in memory and in the browser's storage.
"use strict";

const SHEET = JSON.parse(document.getElementById("judging-data").textContent);
const PREFERENCES = { ArrowLeft: "left", ArrowRight: "right", "=": "equal", " ": "equal" };
const DIGITS = ["12345", "67890"]; // keys of the results on the left and on the right
const ROOT = document.querySelector(".judge");
const KEY = `nobackfill ${SHEET.file_name} ${checksum(JSON.stringify(SHEET.queries) + ids())}`;

let state = { answers: SHEET.queries.map(() => null), marks: SHEET.queries.map(() => []) };
let place = 0; // number of the query that is shown; the number of queries at the end
let isStored = true; // whether the browser keeps the answers
let isSaved = true; // whether the file has all answers
const past = []; // state and place before each key

/** A number that changes with the text. */
function checksum(text) {
  let hash = 0;
  for (const sign of text) {
    hash = (Math.imul(hash, 31) + sign.codePointAt(0)) | 0;
  }
  return hash >>> 0;
}

/** The ids of all items. */
function ids() {
  return JSON.stringify(SHEET.items.map((item) => item.id));
}

/** The results on the left and on the right. */
function sidesOf(query) {
  return query.is_swapped ? [query.after, query.before] : [query.before, query.after];
}

/** A new element with a class and children. */
function element(name, className, ...children) {
  const created = document.createElement(name);
  created.className = className;
  created.append(...children);
  return created;
}

/** An item as a picture or a text, with its id. */
function shownItem(item) {
  const parts = [];
  if (item.picture) {
    const picture = element("img", "");
    picture.src = item.picture;
    picture.alt = item.id;
    parts.push(picture);
  } else if (item.text) {
    parts.push(element("span", "judge-text", item.text));
  }
  const label = element("span", item.picture || item.text ? "judge-id" : "judge-only", item.label);
  label.title = item.id;
  return [...parts, label];
}

/** A result with its key; it can be marked by a click, too. */
function shownResult(number, key, isMarked, isOnBoth) {
  const words = element("span", "judge-item", ...shownItem(SHEET.items[number]));
  if (isOnBoth) {
    words.append(element("span", "judge-both", "both sides"));
  }
  const button = element("button", "", element("kbd", "", key), words);
  button.type = "button";
  button.dataset.key = key;
  button.setAttribute("aria-pressed", String(isMarked));
  return element("li", "", button);
}

/** Shows the query at `place`, or that all are judged; keeps the focus on its button. */
function show() {
  const focused = ROOT.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const judged = state.answers.filter((answer) => answer !== null).length;
  const total = SHEET.queries.length;
  const isDone = place >= total;
  ROOT.querySelector("progress").value = judged;
  ROOT.querySelector(".judge-count").textContent = `${judged} of ${total} judged`;
  const done = ROOT.querySelector(".judge-done");
  done.hidden = !isDone;
  done.textContent = isDone ? "All queries are judged. Press s to save the answers, z to undo." : "";
  ROOT.querySelectorAll(".judge-query, .judge-sides, .judge-keys, .judge-help").forEach((part) => {
    part.hidden = isDone;
  });
  ROOT.classList.toggle("is-done", isDone);
  ROOT.querySelector("[data-key='z']").disabled = past.length === 0;
  ROOT.querySelector(".judge-kept").hidden = !isStored;
  if (!isDone) {
    showQuery(SHEET.queries[place], state.marks[place]);
  }
  if (focused) {
    ROOT.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
  }
}

/** Scrolls so that the query and the keys are in view, if they are not. */
function bringIntoView() {
  const { top, bottom } = ROOT.getBoundingClientRect();
  if (top < 0 || bottom > innerHeight) {
    ROOT.scrollIntoView({ block: "start" });
  }
}

/** Shows a query and both lists, or tiles if all results are pictures. */
function showQuery(query, marks) {
  const words = element("span", "judge-item", ...shownItem(SHEET.items[query.query]));
  const name = element("span", "judge-name", `Query ${place + 1}`);
  ROOT.querySelector(".judge-query").replaceChildren(name, words);
  const sides = sidesOf(query);
  const areTiles = sides.flat().every((number) => SHEET.items[number].picture);
  ROOT.querySelectorAll(".judge-sides ol").forEach((list, side) => {
    const results = sides[side].map((number, row) => {
      const isOnBoth = sides[1 - side].includes(number);
      return shownResult(number, DIGITS[side][row], marks.includes(number), isOnBoth);
    });
    list.classList.toggle("tiles", areTiles);
    list.replaceChildren(...results);
  });
}

/** Remembers the state before a change. */
function remember() {
  past.push({ state: structuredClone(state), place });
}

/** Marks a result as relevant, or not; on both sides if it is on both. */
function mark(key) {
  const side = DIGITS[0].includes(key) ? 0 : 1;
  const number = sidesOf(SHEET.queries[place])[side][DIGITS[side].indexOf(key)];
  if (number === undefined) {
    return;
  }
  remember();
  const marks = state.marks[place];
  state.marks[place] = marks.includes(number)
    ? marks.filter((other) => other !== number)
    : [...marks, number];
}

/** Keeps what is preferred, and goes to the next query without an answer. */
function prefer(side) {
  remember();
  state.answers[place] = side;
  const next = state.answers.indexOf(null, place);
  place = next >= 0 ? next : firstOpen();
}

/** Number of the first query without an answer. */
function firstOpen() {
  const open = state.answers.indexOf(null);
  return open >= 0 ? open : SHEET.queries.length;
}

/** The answers as lines of JSON, by model and no longer by side. */
function lines() {
  const id = (number) => SHEET.items[number].id;
  return SHEET.queries.flatMap((query, row) => {
    const answer = state.answers[row];
    if (answer === null) {
      return [];
    }
    const isAfter = (answer === "right") !== query.is_swapped;
    const line = {
      query: id(query.query),
      relevant: state.marks[row].map(id),
      before: query.before.map(id),
      after: query.after.map(id),
      preferred: answer === "equal" ? "equal" : isAfter ? "after" : "before",
    };
    return [JSON.stringify(line) + "\n"];
  });
}

/** Downloads the answers. */
function save() {
  const answers = lines();
  const output = ROOT.querySelector(".judge-saved");
  if (!answers.length) {
    output.textContent = "Nothing is judged yet.";
    return;
  }
  const link = element("a", "");
  link.href = URL.createObjectURL(new Blob(answers, { type: "application/jsonl" }));
  link.download = SHEET.file_name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  isSaved = true;
  const number = answers.length === 1 ? "1 answer" : `${answers.length} answers`;
  output.textContent = `Saved ${number} as ${SHEET.file_name}, in your folder of downloads. Next: the same command with --pairs and that file.`;
}

/** Keeps the answers in the browser, if it allows that. */
function store() {
  isSaved = false;
  ROOT.querySelector(".judge-saved").textContent = "";
  try {
    localStorage.setItem(KEY, JSON.stringify(state));
  } catch {
    isStored = false;
  }
}

/** The answers that the browser has kept. */
function restore() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY));
    if (kept?.answers?.length === SHEET.queries.length) {
      state = kept;
      place = firstOpen();
    }
  } catch {
    isStored = false;
  }
}

/** Does what a key means; returns whether it means anything. */
function press(key) {
  const isOpen = place < SHEET.queries.length;
  if (key === "s" || (key === "Enter" && !isOpen)) {
    save();
    return true;
  }
  if (key === "z" || key === "Backspace") {
    if (past.length) {
      ({ state, place } = past.pop());
      store();
    }
  } else if (isOpen && key in PREFERENCES) {
    prefer(PREFERENCES[key]);
    store();
  } else if (isOpen && /^\d$/.test(key)) {
    mark(key);
    store();
  } else {
    return false;
  }
  show();
  bringIntoView();
  return true;
}

document.addEventListener("keydown", (event) => {
  const isElsewhere = event.target.closest("input, .scroll, summary");
  const isOnButton = event.target.closest("button, a") && [" ", "Enter"].includes(event.key);
  if (isElsewhere || isOnButton || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  if (press(event.key.length === 1 ? event.key.toLowerCase() : event.key)) {
    event.preventDefault();
  }
});

ROOT.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) {
    press(button.dataset.key);
    if (event.detail) {
      document.activeElement.blur(); // the space bar must not press it again
    }
  }
});

addEventListener("beforeunload", (event) => {
  if (!isStored && !isSaved) {
    event.preventDefault();
  }
});

document.querySelector(".without-script").hidden = true;
restore();
show();
