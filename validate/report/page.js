// What a mark says of itself, shown at once where it is pointed at or touched. Without scripts browsers show the same
// text after a moment; every value also stands in the table under its chart.
(() => {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  for (const title of document.querySelectorAll(".drawing title")) {
    title.parentNode.setAttribute("data-tip", title.textContent);
    title.remove();
  }
  const show = (event) => {
    const mark = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    tip.hidden = mark === null;
    if (mark === null) return;
    tip.textContent = mark.getAttribute("data-tip");
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 12, document.documentElement.clientWidth - box.width - 8);
    const above = event.clientY - box.height - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 8 ? above : event.clientY + 18}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();
