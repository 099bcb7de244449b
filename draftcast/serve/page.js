// Asks the server for the answer to what the controls say, and puts its HTML in place; nothing is computed here.
// While a slider moves, one question at a time with few draws; when it is let go, the full one, and older ones are dropped.
(() => {
  const form = document.getElementById("settings");
  const answer = document.getElementById("answer");
  const error = document.getElementById("error");
  const rows = [...form.querySelectorAll(".row[data-key]")];
  const fieldOf = (row) => row.querySelector("select, input[name]");
  const sliderOf = (row) => row.querySelector("input[type=range]");
  const rowOf = (key) => rows.find((row) => row.dataset.key === key);
  let running = null; // {preview, abort} of the question on its way
  let wanted = null; // "preview" or "final": what to ask when that is back

  const stopsOf = (row) => sliderOf(row).dataset.stops.split(" ");
  const nearest = (stops, text) => {
    const value = parseFloat(text);
    if (Number.isNaN(value)) return Math.floor(stops.length / 2);
    const away = stops.map((stop) => Math.abs(parseFloat(stop) - value));
    return away.indexOf(Math.min(...away));
  };

  const show = (row) => {
    const field = fieldOf(row);
    row.classList.toggle("changed", field.value !== "");
    row.querySelector(".back").hidden = field.value === "";
    const slider = sliderOf(row);
    if (slider === null) return;
    const stops = stopsOf(row);
    const text = field.value || row.dataset.own;
    slider.value = String(nearest(stops, text));
    slider.setAttribute("aria-valuetext", text === "" ? "not stated" : `${text} ${row.dataset.unit}`.trim());
  };

  const set = (row, text) => {
    fieldOf(row).value = text === row.dataset.own ? "" : text;
    const other = text !== "" && row.dataset.needs ? rowOf(row.dataset.needs) : null;
    if (other && fieldOf(other).value === "" && other.dataset.own === "") {
      fieldOf(other).value = stopsOf(other)[sliderOf(other).value];
      show(other);
    }
    show(row);
  };

  const query = () => {
    const said = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value.trim() !== "") said.append(name, value);
    return said.toString();
  };

  // What keeps its place when the answer is replaced: which parts are open, how far boxes are scrolled, the focus.
  const place = (html) => {
    const open = new Set([...answer.querySelectorAll("details[open]")].map((part) => part.dataset.title));
    const scrolled = [...answer.querySelectorAll(".scroll")].map((box) => [box.getAttribute("aria-label"), box.scrollLeft]);
    const reached = () => [...answer.querySelectorAll("a, summary, .scroll")];
    const nameOf = (part) => part.id || part.getAttribute("aria-label") || part.textContent;
    const focused = answer.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    answer.innerHTML = html;
    for (const part of answer.querySelectorAll("details")) part.open = open.has(part.dataset.title);
    for (const box of answer.querySelectorAll(".scroll")) {
      const before = scrolled.find(([name]) => name === box.getAttribute("aria-label"));
      if (before) box.scrollTo(before[1], 0);
    }
    if (focused !== null) reached().find((part) => nameOf(part) === focused)?.focus({ preventScroll: true });
  };

  const ask = async (preview) => {
    const abort = new AbortController();
    const mine = { preview, abort };
    running = mine;
    wanted = null;
    const said = query();
    try {
      const reply = await fetch(`${preview ? "preview" : "change"}?${said}`, { signal: abort.signal });
      const told = reply.ok ? await reply.json() : { error: (await reply.text()).trim(), answer: null };
      if (running !== mine) return;
      error.textContent = told.error || "";
      answer.classList.toggle("stale", told.error !== null);
      if (told.answer !== null) place(told.answer);
      if (preview || wanted !== null) {
        // the next question is about to be asked
      } else if (told.error === null) {
        history.replaceState(null, "", told.query ? `?${told.query}` : location.pathname);
        document.getElementById("said").textContent = document.getElementById("verdict").textContent;
        document.body.dataset.settled = told.query;
      } else {
        document.body.dataset.settled = "error";
      }
    } catch (problem) {
      if (running !== mine || problem.name === "AbortError") return;
      error.textContent = "The program that serves this page does not answer; is draftcast serve still running?";
      answer.classList.add("stale");
    }
    running = null;
    if (wanted !== null) ask(wanted === "preview");
  };

  const want = (kind) => {
    delete document.body.dataset.settled; // it says of which settings the answer shown is, for tests
    if (kind === "final" && running !== null) {
      running.abort.abort();
      running = null;
    }
    if (running === null) ask(kind === "preview");
    else if (wanted !== "final") wanted = kind;
  };

  let rough = 0;
  let later = 0;
  const soon = () => {
    delete document.body.dataset.settled;
    clearTimeout(later);
    later = setTimeout(() => want("final"), 250);
  };

  for (const row of rows) {
    const slider = sliderOf(row);
    const field = fieldOf(row);
    if (slider !== null) {
      const own = parseFloat(row.dataset.own);
      const stops = stopsOf(row);
      if (!Number.isNaN(own) && !row.dataset.own.includes(",") && !stops.includes(row.dataset.own)) {
        stops.push(row.dataset.own);
        stops.sort((a, b) => parseFloat(a) - parseFloat(b));
        slider.dataset.stops = stops.join(" ");
        slider.max = String(stops.length - 1);
      }
      slider.hidden = false;
      slider.addEventListener("input", () => {
        set(row, stops[slider.value]);
        clearTimeout(rough);
        rough = setTimeout(() => want("preview"), 0); // not where "change" follows at once, as it does after a key
        soon();
      });
      slider.addEventListener("change", () => {
        clearTimeout(rough);
        clearTimeout(later);
        want("final");
      });
    }
    field.addEventListener("input", () => {
      show(row);
      if (field.tagName !== "SELECT") soon();
    });
    if (field.tagName === "SELECT") field.addEventListener("change", () => want("final"));
    row.querySelector(".back").addEventListener("click", () => {
      set(row, "");
      want("final");
      field.focus();
    });
    show(row);
  }
  document.getElementById("free").addEventListener("input", soon);
  document.getElementById("reset").addEventListener("click", (event) => {
    event.preventDefault();
    for (const row of rows) set(row, "");
    document.getElementById("free").value = "";
    want("final");
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(later);
    want("final");
  });
})();
