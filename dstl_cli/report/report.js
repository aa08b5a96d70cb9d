"use strict";

// The slider: a range input for the keyboard and for screen readers, the pointer for mouse and touch.
for (const stage of document.querySelectorAll(".compare")) {
  const range = stage.querySelector("input");
  const cutAt = (percent) => stage.style.setProperty("--cut", `${percent}%`);
  const follow = (event) => {
    const box = stage.getBoundingClientRect();
    const percent = Math.min(100, Math.max(0, (100 * (event.clientX - box.left)) / box.width));
    range.value = percent;
    cutAt(percent);
  };
  range.addEventListener("input", () => cutAt(range.value));
  stage.addEventListener("pointerdown", (event) => {
    stage.setPointerCapture(event.pointerId);
    range.focus({ preventScroll: true });
    follow(event);
  });
  stage.addEventListener("pointermove", (event) => {
    if (stage.hasPointerCapture(event.pointerId)) follow(event);
  });
  cutAt(range.value); // a reload keeps what the input had
}

// The choices of noise level and method: what belongs to another one is hidden.
for (const card of document.querySelectorAll(".exhibit")) {
  const choose = (kind, value) => {
    for (const part of card.querySelectorAll(`[data-${kind}]`)) part.hidden = part.dataset[kind] !== value;
  };
  for (const radio of card.querySelectorAll("input[type=radio]")) {
    radio.addEventListener("change", () => choose(radio.dataset.chooses, radio.value));
    if (radio.checked) choose(radio.dataset.chooses, radio.value);
  }
}
