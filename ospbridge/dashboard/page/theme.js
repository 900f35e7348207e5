// Light, dark, or as the system has it. Runs before anything is drawn, so that nothing flashes in the wrong colours.
"use strict";

(() => {
  const KEY = "ospbridge-theme";
  const CHOICES = {
    auto: { mark: "◐", text: "Auto", label: "Auto: colours as the system has them" },
    light: { mark: "○", text: "Light", label: "Light colours" },
    dark: { mark: "●", text: "Dark", label: "Dark colours" },
  };

  function stored() {
    try {
      const said = localStorage.getItem(KEY);
      return said in CHOICES ? said : "auto";
    } catch {
      return "auto"; // a browser that keeps nothing
    }
  }

  function show(choice) {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    const button = document.getElementById("theme");
    if (button) {
      document.getElementById("theme-mark").textContent = CHOICES[choice].mark;
      document.getElementById("theme-text").textContent = CHOICES[choice].text;
      button.setAttribute("aria-label", CHOICES[choice].label);
    }
    window.dispatchEvent(new Event("themechange"));
  }

  let choice = stored();
  show(choice);
  document.addEventListener("DOMContentLoaded", () => {
    show(choice);
    const button = document.getElementById("theme");
    if (!button) return;
    button.addEventListener("click", () => {
      const names = Object.keys(CHOICES);
      choice = names[(names.indexOf(choice) + 1) % names.length];
      try {
        localStorage.setItem(KEY, choice);
      } catch {
        // then it lasts as long as the page
      }
      show(choice);
    });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(choice));
})();
